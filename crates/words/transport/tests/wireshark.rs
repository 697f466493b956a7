//! What tshark reads of frames with the script that is installed (share/wireshark/evenkeel-link.lua) is what was written.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use transport::{Flags, Header, Kind, Node, NodeSettings, Offer, Reason, Serial};
use wire::checksum::update;

const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const UDP_PORT: u16 = 4791;
const FIELDS: &str = "version kind flags length from_port to_port connection epoch sequence acknowledged received \
    received.number credit checksum checksum.good payload padding offer.connection offer.payload_max \
    offer.stream reason version.lowest version.highest name flags.first flags.last flags.ask flags.again \
    flags.congested flags.echo flags.fin flags.not_ready";
/// The user "nobody".
const NOBODY: u32 = 65_534;
const EXPERTS: [&str; 4] = ["short", "other_version", "unknown_kind", "wrong_checksum"];

/// A capture of Ethernet frames.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame) in (0u32..).zip(frames) {
        let len = frame.len() as u32;
        [at, 0, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

fn ethernet(payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ETHERTYPE, payload].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let lens = [(28 + payload.len()) as u16, (8 + payload.len()) as u16].map(u16::to_be_bytes);
    let ip = [&[0x45, 0][..], &lens[0], &[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]].concat();
    let head = [&40_000u16.to_be_bytes()[..], &UDP_PORT.to_be_bytes(), &lens[1], &[0, 0]].concat();
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &head, payload].concat()
}

/// Fields of the protocol of each frame, as tshark prints them; several values of one are parted by commas.
fn read(frames: &[Vec<u8>], fields: &[String]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("frames.pcap");
    fs::write(&file, pcap(frames)).expect("written");
    let script = folder.path().join("evenkeel-link.lua");
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../share/wireshark/evenkeel-link.lua");
    fs::copy(installed, &script).expect("copied");
    let mut tshark = Command::new("tshark");
    // Since version 4.4 tshark runs no script as root.
    if fs::metadata("/proc/self").expect("of this process").uid() == 0 {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its folder");
        tshark.uid(NOBODY).gid(NOBODY).env("HOME", folder.path());
    }
    tshark.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file);
    let preference = format!("evenkeel_link.udp_port:{UDP_PORT}");
    tshark.args(["-o", &preference, "-T", "fields", "-E", "separator=;", "-E", "aggregator=,"]);
    fields.iter().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let output = tshark.output().expect("tshark is installed (tools/setup)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    // Truth is a number before version 4.2.
    let value = |field: &str| field.replace("True", "1").replace("False", "0");
    text.lines().map(|line| line.split(';').map(value).collect()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What tshark is to print for [`FIELDS`] of a frame of version 1.
fn wanted(header: &Header, head: &[u8], payload: &[u8], padding: &[u8]) -> Vec<String> {
    let numbers = (0..32).filter(|bit| header.received >> bit & 1 == 1);
    let numbers: Vec<String> = numbers.map(|bit| header.acknowledged.plus(1 + bit).0.to_string()).collect();
    let offer = Offer::read(payload).filter(|_| matches!(header.kind, Kind::Open | Kind::OpenAck));
    let of_offer = |of: &dyn Fn(Offer) -> String| offer.map_or(String::new(), of);
    let is = |kind: Kind, text: String| if header.kind == kind { text } else { String::new() };
    let mut line = vec![
        "1".to_owned(),
        (head[0] & 15).to_string(),
        format!("0x{:02x}", header.flags.0),
        payload.len().to_string(),
        header.from_port.to_string(),
        header.to_port.to_string(),
        format!("0x{:08x}", header.connection),
        format!("0x{:08x}", header.epoch),
        header.sequence.0.to_string(),
        header.acknowledged.0.to_string(),
        format!("0x{:08x}", header.received),
        numbers.join(","),
        header.credit.to_string(),
        format!("0x{}", hex(&head[30..32])),
        "1".to_owned(),
        hex(payload),
        hex(padding),
        of_offer(&|offer| format!("0x{:08x}", offer.connection)),
        of_offer(&|offer| offer.payload_max.to_string()),
        of_offer(&|offer| u8::from(offer.stream).to_string()),
        is(Kind::Reset, payload.first().map_or(String::new(), u8::to_string)),
        String::new(),
        String::new(),
        is(Kind::Hello, String::from_utf8_lossy(payload).into_owned()),
    ];
    line.extend((0..8).map(|bit| (header.flags.0 >> bit & 1).to_string()));
    line
}

fn names(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| format!("evenkeel_link.{field}")).collect()
}

#[test]
fn every_field_is_read_of_frames_over_ethernet_and_udp() {
    let offer = Offer { connection: 0xdead_beef, payload_max: 1468, stream: true }.bytes();
    let reasons = [
        Reason::Refused,
        Reason::Unknown,
        Reason::Aborted,
        Reason::Mismatch,
        Reason::TimedOut,
        Reason::Forbidden,
        Reason::Version,
    ];
    let mut payloads: Vec<(Kind, Vec<u8>)> =
        reasons.iter().map(|reason| (Kind::Reset, reason.bytes().to_vec())).collect();
    payloads.extend([
        (Kind::Data, b"odd".to_vec()),
        (Kind::Data, vec![0xff; 1000]),
        (Kind::Probe, vec![]),
        (Kind::Ack, vec![]),
        (Kind::Open, offer.to_vec()),
        (Kind::OpenAck, Offer { connection: 1, payload_max: 9, stream: false }.bytes().to_vec()),
        (Kind::Busy, vec![]),
        (Kind::Hello, b"node7".to_vec()),
    ]);
    let (mut frames, mut lines) = (Vec::new(), Vec::new());
    for (at, (kind, payload)) in (0u32..).zip(payloads) {
        let header = Header {
            kind,
            flags: Flags((1u32 << (at % 8)) as u8 | at as u8),
            from_port: 7 + at as u16,
            to_port: u16::MAX - at as u16,
            connection: at.wrapping_mul(0x9e37_79b9),
            epoch: !at,
            sequence: Serial((u32::MAX - 3).wrapping_add(at)),
            acknowledged: Serial(u32::MAX.wrapping_add(at)),
            received: (1 << (at % 32)) | (0x8000_0001 * (at % 2)),
            credit: (at * 1000) as u16,
        };
        let head = header.write(&payload);
        let padding = vec![0; if at % 3 == 0 { 14 } else { 0 }];
        let frame = [&head[..], &payload, &padding].concat();
        frames.push(if at % 2 == 0 { ethernet(&frame) } else { udp(&frame) });
        lines.push(wanted(&header, &head, &payload, &padding));
    }
    let fields: Vec<&str> = FIELDS.split_whitespace().collect();
    let read = read(&frames, &names(&fields));
    assert_eq!(read.len(), lines.len());
    for (at, (read, wanted)) in read.iter().zip(&lines).enumerate() {
        for (field, (read, wanted)) in fields.iter().zip(read.iter().zip(wanted)) {
            assert_eq!(read, wanted, "frame {at}, {field}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_frame_is_named_and_a_notice_is_read() {
    let mut node = Node::new(NodeSettings {
        name: "x".to_owned(),
        epoch: 5,
        payload_max: 100,
        slots: 8,
        secret: 1,
        ports: transport::FREE_PORTS,
    });
    let header = Header {
        kind: Kind::Data,
        flags: Flags::default(),
        from_port: 300,
        to_port: 9,
        connection: 1,
        epoch: 2,
        sequence: Serial(77),
        acknowledged: Serial(4),
        received: 0,
        credit: 6,
    };
    let good = [&header.write(b"payload")[..], b"payload"].concat();
    let changed = |at: usize, to: u8| {
        let mut frame = good.clone();
        frame[at] = to;
        frame
    };
    // With the checksum that belongs to it: otherwise it is a damaged one, and not answered.
    let mut other = changed(0, 0x20);
    let sum = update(u16::from_be_bytes([good[30], good[31]]), 0x1000, 0x2000);
    other[30..32].copy_from_slice(&sum.to_be_bytes());
    node.on_frame(1, 1, &other);
    let (_, head, payload) = node.poll(1).expect("a notice");
    let notice = [&head[..], payload].concat();
    let frames =
        [good.clone(), good[..20].to_vec(), good[..34].to_vec(), other, changed(0, 0x1c), changed(33, 0), notice];
    let frames: Vec<Vec<u8>> = frames.iter().map(|frame| ethernet(frame)).collect();
    let fields =
        ["version", "sequence", "from_port", "kind", "reason", "version.lowest", "version.highest", "checksum.good"];
    let read = read(&frames, &names(&[&EXPERTS[..], &fields].concat()));
    let wrong = |at: Option<usize>| (0..EXPERTS.len()).map(move |expert| Some(expert) == at).collect::<Vec<bool>>();
    let experts: Vec<Vec<bool>> =
        read.iter().map(|line| line[..4].iter().map(|field| !field.is_empty()).collect()).collect();
    let both = vec![false, false, true, true];
    assert_eq!(
        experts,
        [wrong(None), wrong(Some(0)), wrong(Some(0)), wrong(Some(1)), both, wrong(Some(3)), wrong(None)]
    );
    assert_eq!(read[3][4..], ["2", "77", "300", "", "", "", "", ""], "what no version may change");
    assert_eq!(read[5][11], "0");
    assert_eq!(read[6][4..], ["0", "77", "9", "5", "6", "1", "1", "1"]);
}
