//! The bytes of a packet below its line.

use std::io::Write;

use super::Bytes;

const LINE: usize = 16;

/// Appends the bytes in hexadecimal, as ASCII, or both beside each other.
pub(super) fn write(out: &mut Vec<u8>, data: &[u8], bytes: Bytes) {
    if !bytes.hex {
        ascii(out, data);
        return;
    }
    for (i, line) in data.chunks(LINE).enumerate() {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\t0x{:04x}: ", i * LINE);
        for pair in line.chunks(2) {
            out.push(b' ');
            for byte in pair {
                let _ = write!(out, "{byte:02x}");
            }
        }
        if bytes.ascii {
            let missing = LINE - line.len();
            out.extend(std::iter::repeat_n(b' ', missing * 2 + missing / 2 + 2));
            out.extend(line.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b'.' }));
        }
        out.push(b'\n');
    }
}

/// Text with its own line ends; whatever a terminal could take for a command becomes a dot.
fn ascii(out: &mut Vec<u8>, data: &[u8]) {
    for (i, byte) in data.iter().enumerate() {
        match byte {
            b'\r' if data.get(i + 1) == Some(&b'\n') => {}
            b'\n' | b'\t' | b' ' => out.push(*byte),
            byte if byte.is_ascii_graphic() => out.push(*byte),
            _ => out.push(b'.'),
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_as_a_command() {
        let all: Vec<u8> = (0..=255).collect();
        for (hex, ascii) in [(false, true), (true, true), (true, false)] {
            let mut out = Vec::new();
            write(&mut out, &all, Bytes { hex, ascii, link: true });
            assert!(out.iter().all(|b| matches!(b, b'\n' | b'\t' | b' '..=b'~')), "{out:?}");
        }
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut out = Vec::new();
        write(&mut out, b"0123456789abcdefXY", Bytes { hex: true, ascii: true, link: true });
        let text = String::from_utf8(out).unwrap();
        let at: Vec<_> = text.lines().map(|l| l.len() - l.rsplit("  ").next().unwrap().len()).collect();
        assert_eq!(at[0], at[1], "{text}");
    }
}
