//! Frames from the text of `--sizes`.

use bpf::r#gen::LIVE_FRAME_MAX;
use lab::boxes::Family;
use model::bench::FrameSpec;
use wire::{FrameSize, IMIX, ethernet::FCS_LEN, transport::UDP_LEN};

use crate::BenchError;

use super::{
    FRAGMENT_MTU, SIGNATURE_BYTES,
    unit::{fragment_room, ip_header_len, udp_headers},
};

/// UDP payloads of the study's fragmented datagrams, in bytes.
const FRAGMENTED: [u32; 5] = [4096, 8192, 16_384, 32_768, 65_507];
/// The most UDP payload of an IPv4 datagram, in bytes; of IPv6 as much is sent.
const PAYLOAD_MAX: u32 = 65_507;

/// The least frame that holds the headers and a signature, in bytes with FCS: 64, and 84 with IPv6.
pub fn least_bytes(family: Family) -> u32 {
    (udp_headers(family) + SIGNATURE_BYTES + FCS_LEN).max(FrameSize::MIN.bytes_with_fcs()) as u32
}

/// A note on the least frame; none where it is RFC 2544's 64 bytes.
pub fn least_note(family: Family) -> Option<String> {
    let least = least_bytes(family);
    (least > 64).then(|| {
        format!(
            "{least} stands for 64: Ethernet, IPv6 and UDP headers and the tester's signature of {SIGNATURE_BYTES} bytes take {least} bytes with FCS"
        )
    })
}

/// The seven frame sizes of RFC 2544, section 9.1; with IPv6 the least one is larger ([`least_note`]).
pub fn rfc2544(family: Family) -> Vec<FrameSpec> {
    FrameSize::RFC2544.iter().map(|s| FrameSpec::Size { bytes: grown(*s, family) }).collect()
}

/// The study's fragmented datagrams.
pub fn fragmented(family: Family) -> Vec<FrameSpec> {
    FRAGMENTED.iter().map(|&payload| datagram(payload, family)).collect()
}

/// The simple Internet mix: 7 of 64, 4 of 594, 1 of 1518 bytes; with IPv6 the least ones are larger.
pub fn imix(family: Family) -> FrameSpec {
    let least = least_bytes(family);
    let name = if least > 64 { format!("imix ({least} for 64)") } else { "imix".into() };
    FrameSpec::Mix { name, bytes: IMIX.iter().map(|s| grown(*s, family)).collect() }
}

fn grown(size: FrameSize, family: Family) -> u32 {
    (size.bytes_with_fcs() as u32).max(least_bytes(family))
}

/// Fragments that a datagram of `payload` bytes takes at an MTU of [`FRAGMENT_MTU`]; 1 if it fits whole.
pub fn fragments(payload: u32, family: Family) -> u32 {
    let total = payload as usize + UDP_LEN;
    if total + ip_header_len(family) <= FRAGMENT_MTU as usize {
        1
    } else {
        total.div_ceil(fragment_room(family)) as u32
    }
}

fn datagram(payload: u32, family: Family) -> FrameSpec {
    match fragments(payload, family) {
        1 => FrameSpec::Size { bytes: payload + (udp_headers(family) + FCS_LEN) as u32 },
        fragments => FrameSpec::Datagram { payload, fragments },
    }
}

/// True if frames of `bytes` with FCS can be sent at all.
pub(super) fn check(bytes: u32, family: Family) -> Result<(), BenchError> {
    let (least, most) = (least_bytes(family), (LIVE_FRAME_MAX + FCS_LEN) as u32);
    let (version, headers) = match family {
        Family::V4 => ("IPv4", udp_headers(family)),
        Family::V6 => ("IPv6", udp_headers(family)),
    };
    if bytes < least {
        return Err(BenchError::Setting(format!(
            "a frame of {bytes} bytes with FCS is too small: {headers} bytes of Ethernet, {version} and UDP headers, the tester's signature of {SIGNATURE_BYTES} and the FCS take {least}, so ask for {least}"
        )));
    }
    if bytes > most {
        return Err(BenchError::Setting(format!(
            "a frame of {bytes} bytes with FCS is too large: live frames have up to {most}; for a datagram in fragments say udp{bytes}, by its payload"
        )));
    }
    Ok(())
}

/// Reads the text of `--sizes`: parts between commas, each
///
/// ```text
/// 64             frames of so many bytes with FCS
/// udp4096        UDP datagrams with so many bytes of payload, in fragments where they do not fit an MTU of 1500
/// 64+594+1518    these sizes in turn
/// imix           7 of 64, 4 of 594, 1 of 1518 bytes
/// rfc2544        the seven sizes of RFC 2544
/// fragmented     payloads of 4096, 8192, 16384, 32768 and 65507 bytes
/// ```
///
/// # Errors
/// [`BenchError::Setting`] for a part that is none of these, a size that is not possible, and one that is there twice.
pub fn parse(text: &str, family: Family) -> Result<Vec<FrameSpec>, BenchError> {
    let mut specs: Vec<FrameSpec> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let more = match part {
            "rfc2544" => rfc2544(family),
            "fragmented" => fragmented(family),
            "imix" => vec![imix(family)],
            _ => vec![one(part, family)?],
        };
        for spec in more {
            if specs.contains(&spec) {
                return Err(BenchError::Setting(format!(
                    "the sizes `{text}` name {spec} twice: each is measured once"
                )));
            }
            specs.push(spec);
        }
    }
    Ok(specs)
}

fn one(part: &str, family: Family) -> Result<FrameSpec, BenchError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten().ok_or_else(|| {
            BenchError::Setting(format!(
                "`{part}` is no frame size: write bytes with FCS such as 64 or 1518, udp4096 for a datagram by its payload, 64+594+1518 for a mix, or imix, rfc2544, fragmented"
            ))
        })
    };
    if let Some(payload) = part.strip_prefix("udp") {
        let payload = number(payload)?;
        if !(SIGNATURE_BYTES as u32..=PAYLOAD_MAX).contains(&payload) {
            return Err(BenchError::Setting(format!(
                "a datagram of {payload} bytes of payload is not possible: it has {SIGNATURE_BYTES} (the tester's signature) to {PAYLOAD_MAX}"
            )));
        }
        return Ok(datagram(payload, family));
    }
    let bytes = part.split('+').map(number).collect::<Result<Vec<u32>, _>>()?;
    bytes.iter().try_for_each(|&b| check(b, family))?;
    match bytes[..] {
        [bytes] => Ok(FrameSpec::Size { bytes }),
        _ => Ok(FrameSpec::Mix { name: part.to_owned(), bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str, family: Family) -> Vec<String> {
        parse(text, family).unwrap().iter().map(FrameSpec::label).collect()
    }

    #[test]
    fn the_words_of_the_command_line_are_read() {
        assert_eq!(labels("rfc2544", Family::V4), ["64", "128", "256", "512", "1024", "1280", "1518"]);
        assert_eq!(labels("rfc2544", Family::V6)[..2], ["84", "128"]);
        assert_eq!(
            labels("64, udp4096,udp65507,imix", Family::V4),
            ["64", "4096 in 3 fragments", "65507 in 45 fragments", "imix"]
        );
        assert_eq!(labels("udp65507,imix", Family::V6), ["65507 in 46 fragments", "imix (84 for 64)"]);
        assert_eq!(labels("udp18,udp1472,udp1473", Family::V4), ["64", "1518", "1473 in 2 fragments"]);
        assert_eq!(labels("64+1518", Family::V4), ["64+1518"]);
        assert_eq!(labels("fragmented", Family::V4).len(), 5);
        assert!(least_note(Family::V4).is_none() && least_note(Family::V6).unwrap().starts_with("84 stands for 64"));
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_way_out() {
        let say = |text, family| parse(text, family).unwrap_err().to_string();
        for bad in ["", "x", "-1", "+64", "64,", "udp", "64..128", "99999999999"] {
            assert!(say(bad, Family::V4).contains("is no frame size"), "{bad}");
        }
        assert!(say("63", Family::V4).ends_with("take 64, so ask for 64"));
        assert!(say("64", Family::V6).ends_with("take 84, so ask for 84"), "{}", say("64", Family::V6));
        assert!(say("9000", Family::V4).contains("up to 3076; for a datagram in fragments say udp9000"));
        assert!(say("udp65508", Family::V4).contains("to 65507") && say("udp17", Family::V4).contains("it has 18"));
        assert!(say("64,udp18", Family::V4).contains("twice"));
    }
}
