use super::*;

#[test]
fn filters_compile_for_a_link_type_and_what_is_wrong_has_a_reason() {
    let ethernet = Pcap::of_link_type(1).unwrap();
    assert_eq!((ethernet.link_type(), link_name(1), link_name(4711)), (1, "EN10MB".to_owned(), "4711".to_owned()));
    let program = ethernet.compile("udp port 53").unwrap();
    assert!(program.len() > 5 && program.len() < 100, "{program:?}");
    let Err(PcapError::Libpcap(reason)) = ethernet.compile("port of call") else { panic!("a filter") };
    assert!(reason.contains("of"), "{reason}");
    assert!(ethernet.compile("udp\0port 53").is_err());
    assert!(ethernet.compile("").unwrap().len() <= 1);
}

#[test]
fn a_file_is_read_to_its_end_or_to_where_it_breaks_off() {
    let path = std::env::temp_dir().join(format!("evenkeel-libpcap-{}", std::process::id()));
    let mut bytes = Vec::new();
    // Nanoseconds, version 2.4, a snap length of 262144, Ethernet; one packet of 4 of 60 bytes.
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 0x4_0000, 1, 7, 999_999_999, 4, 60, 0x4433_2211] {
        bytes.extend(u32::to_le_bytes(word));
    }
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let mut file = Pcap::of_file(&path)?;
        let mut found = Vec::new();
        while let Some(packet) = file.next_packet()? {
            found.push((packet.seconds, packet.nanoseconds, packet.wire_len, packet.data.to_vec()));
        }
        Ok::<_, PcapError>(found)
    };
    let whole = read(&bytes);
    let cut = read(&bytes[..bytes.len() - 1]);
    let other = read(b"no capture at all, but long enough to be one");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(whole.unwrap(), [(7, 999_999_999, 60, vec![0x11, 0x22, 0x33, 0x44])]);
    assert!(matches!(cut, Err(PcapError::Libpcap(reason)) if reason.contains("truncated")));
    assert!(matches!(other, Err(PcapError::Libpcap(reason)) if reason.contains("format")));
}
