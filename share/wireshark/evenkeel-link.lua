-- Wireshark's view of the protocol of messages between nodes (docs/protocol/link.md), version 1 and the notice that all versions read:
-- frames of EtherType 0x88B5, and of UDP where the preference `udp_port` says so.
--
--   tshark -X lua_script:evenkeel-link.lua -r FILE
--   tshark -X lua_script:evenkeel-link.lua -o evenkeel_link.udp_port:PORT -r FILE
-- SPDX-License-Identifier: Apache-2.0 OR MIT

local link = Proto("evenkeel_link", "evenkeel link")

local HEADER, VERSION, NOTICE, ETHERTYPE = 32, 1, 0, 0x88B5
local KINDS = {
  [0] = "data", [1] = "probe", [2] = "ack", [3] = "open", [4] = "open-ack", [5] = "reset", [6] = "busy", [7] = "hello",
}
local OPEN, OPEN_ACK, RESET, HELLO = 3, 4, 5, 7
local REASONS = {
  [0] = "refused", [1] = "unknown", [2] = "aborted", [3] = "mismatch", [4] = "timed out", [5] = "forbidden", [6] = "version",
}
local VERSION_REASON = 6
-- By bit, the lowest first.
local FLAGS = {
  { "first", "First part of a message" }, { "last", "Last part of a message" }, { "ask", "Acknowledgement wanted at once" },
  { "again", "Sent before" }, { "congested", "Met congestion" }, { "echo", "Acknowledged frames met congestion" },
  { "fin", "Nothing follows" }, { "not_ready", "No room" },
}

local f = {
  version = ProtoField.uint8("evenkeel_link.version", "Version", base.DEC, nil, 0xF0),
  kind = ProtoField.uint8("evenkeel_link.kind", "Kind", base.DEC, KINDS, 0x0F),
  flags = ProtoField.uint8("evenkeel_link.flags", "Flags", base.HEX),
  length = ProtoField.uint16("evenkeel_link.length", "Length of the payload"),
  from_port = ProtoField.uint16("evenkeel_link.from_port", "From port"),
  to_port = ProtoField.uint16("evenkeel_link.to_port", "To port"),
  connection = ProtoField.uint32("evenkeel_link.connection", "Connection (the receiver's number)", base.HEX),
  epoch = ProtoField.uint32("evenkeel_link.epoch", "Epoch", base.HEX),
  sequence = ProtoField.uint32("evenkeel_link.sequence", "Sequence"),
  acknowledged = ProtoField.uint32("evenkeel_link.acknowledged", "Acknowledged: all before"),
  received = ProtoField.uint32("evenkeel_link.received", "Received behind it", base.HEX),
  received_number = ProtoField.uint32("evenkeel_link.received.number", "Received"),
  credit = ProtoField.uint16("evenkeel_link.credit", "Credit, frames"),
  checksum = ProtoField.uint16("evenkeel_link.checksum", "Checksum", base.HEX),
  checksum_good = ProtoField.bool("evenkeel_link.checksum.good", "Checksum is right"),
  payload = ProtoField.bytes("evenkeel_link.payload", "Payload"),
  padding = ProtoField.bytes("evenkeel_link.padding", "Padding"),
  offer_connection = ProtoField.uint32("evenkeel_link.offer.connection", "The offering end's number", base.HEX),
  offer_payload = ProtoField.uint16("evenkeel_link.offer.payload_max", "Longest payload"),
  offer_stream = ProtoField.uint8("evenkeel_link.offer.stream", "Form", base.DEC, { [0] = "messages", [1] = "stream" }),
  reason = ProtoField.uint8("evenkeel_link.reason", "Reason", base.DEC, REASONS),
  lowest = ProtoField.uint8("evenkeel_link.version.lowest", "Lowest version of the sender"),
  highest = ProtoField.uint8("evenkeel_link.version.highest", "Highest version of the sender"),
  name = ProtoField.string("evenkeel_link.name", "Name of the node"),
}
local flag_fields = {}
for bit, flag in ipairs(FLAGS) do
  flag_fields[bit] = ProtoField.bool("evenkeel_link.flags." .. flag[1], flag[2], 8, nil, 2 ^ (bit - 1))
  f["flag" .. bit] = flag_fields[bit]
end
link.fields = f

local e = {
  short = ProtoExpert.new("evenkeel_link.short", "Shorter than its header or payload", expert.group.MALFORMED, expert.severity.ERROR),
  other = ProtoExpert.new("evenkeel_link.other_version", "Another version", expert.group.PROTOCOL, expert.severity.WARN),
  kind = ProtoExpert.new("evenkeel_link.unknown_kind", "Unknown kind", expert.group.PROTOCOL, expert.severity.WARN),
  checksum = ProtoExpert.new("evenkeel_link.wrong_checksum", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR),
}
link.experts = e

link.prefs.udp_port = Pref.uint("UDP port", 0, "The UDP port behind which these frames are; 0: none")

-- The Internet checksum over what holds it: 0 if it is right.
local function sum(bytes)
  local total, len = 0, bytes:len()
  for at = 0, len - 2, 2 do
    total = total + bytes(at, 2):uint()
  end
  if len % 2 == 1 then
    total = total + bytes(len - 1, 1):uint() * 256
  end
  while total > 0xFFFF do
    total = total % 0x10000 + math.floor(total / 0x10000)
  end
  return 0xFFFF - total
end

local function names_of(flags)
  local names = {}
  for bit, flag in ipairs(FLAGS) do
    if math.floor(flags / 2 ^ (bit - 1)) % 2 == 1 then
      names[#names + 1] = (flag[1]:gsub("_", " "))
    end
  end
  return #names > 0 and " [" .. table.concat(names, ", ") .. "]" or ""
end

local function payload_of(kind, notice, payload, tree)
  local len = payload:len()
  if (kind == OPEN or kind == OPEN_ACK) and len >= 8 then
    tree:add(f.offer_connection, payload(0, 4))
    tree:add(f.offer_payload, payload(4, 2))
    tree:add(f.offer_stream, payload(6, 1))
  elseif kind == RESET and len >= 1 then
    local reason = payload(0, 1):uint()
    tree:add(f.reason, payload(0, 1))
    if notice and reason == VERSION_REASON and len >= 3 then
      tree:add(f.lowest, payload(1, 1))
      tree:add(f.highest, payload(2, 1))
    end
    return " " .. (REASONS[reason] or ("reason " .. reason))
  elseif kind == HELLO and len > 0 then
    tree:add(f.name, payload)
    return " " .. payload:string()
  end
  return ""
end

function link.dissector(buffer, pinfo, root)
  local len = buffer:len()
  pinfo.cols.protocol = "evenkeel"
  local tree = root:add(link, buffer())
  if len < HEADER then
    tree:add_proto_expert_info(e.short)
    pinfo.cols.info = "short frame"
    return len
  end
  local version, kind = math.floor(buffer(0, 1):uint() / 16), buffer(0, 1):uint() % 16
  tree:add(f.version, buffer(0, 1))
  local from, to = buffer(4, 2):uint(), buffer(6, 2):uint()
  if version ~= VERSION and version ~= NOTICE then
    -- What no version may change.
    tree:add(f.from_port, buffer(4, 2))
    tree:add(f.to_port, buffer(6, 2))
    tree:add(f.sequence, buffer(16, 4))
    tree:add_proto_expert_info(e.other)
    pinfo.cols.info = string.format("version %d %d → %d", version, from, to)
    return len
  end
  tree:add(f.kind, buffer(0, 1))
  local flags = tree:add(f.flags, buffer(1, 1))
  for _, field in ipairs(flag_fields) do
    flags:add(field, buffer(1, 1))
  end
  local length, sequence, acknowledged = buffer(2, 2):uint(), buffer(16, 4):uint(), buffer(20, 4):uint()
  tree:add(f.length, buffer(2, 2))
  tree:add(f.from_port, buffer(4, 2))
  tree:add(f.to_port, buffer(6, 2))
  tree:add(f.connection, buffer(8, 4))
  tree:add(f.epoch, buffer(12, 4))
  tree:add(f.sequence, buffer(16, 4))
  tree:add(f.acknowledged, buffer(20, 4))
  local received = tree:add(f.received, buffer(24, 4))
  local bits = buffer(24, 4):uint()
  for bit = 0, 31 do
    if math.floor(bits / 2 ^ bit) % 2 == 1 then
      received:add(f.received_number, buffer(24, 4), (acknowledged + 1 + bit) % 2 ^ 32):set_generated()
    end
  end
  tree:add(f.credit, buffer(28, 2))
  local checksum = tree:add(f.checksum, buffer(30, 2))
  local told = string.format("%s %d → %d seq=%u ack=%u credit=%u len=%u%s", KINDS[kind] or ("kind " .. kind), from, to, sequence,
    acknowledged, buffer(28, 2):uint(), length, names_of(buffer(1, 1):uint()))
  if not KINDS[kind] then
    tree:add_proto_expert_info(e.kind)
  end
  if len < HEADER + length then
    tree:add_proto_expert_info(e.short)
    pinfo.cols.info = told .. " cut"
    return len
  end
  local good = sum(buffer(0, HEADER + length)) == 0
  checksum:add(f.checksum_good, buffer(30, 2), good):set_generated()
  if not good then
    tree:add_proto_expert_info(e.checksum)
  end
  if length > 0 then
    local payload = buffer(HEADER, length)
    told = told .. payload_of(kind, version == NOTICE, payload, tree:add(f.payload, payload))
  end
  if len > HEADER + length then
    tree:add(f.padding, buffer(HEADER + length))
  end
  pinfo.cols.info = told
  return len
end

DissectorTable.get("ethertype"):add(ETHERTYPE, link)

local port = 0
function link.prefs_changed()
  local udp = DissectorTable.get("udp.port")
  if port ~= 0 then
    udp:remove(port, link)
  end
  port = link.prefs.udp_port
  if port ~= 0 then
    udp:add(port, link)
  end
end
