//! A tun: an interface whose packets have no Ethernet header.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use crate::Space;

/// Makes the tun, and writes each line of hexadecimal digits into it as one packet; answers each line.
const WRITER: &str = "import fcntl,os,struct,sys
tun=os.open('/dev/net/tun',os.O_RDWR)
fcntl.ioctl(tun,0x400454ca,struct.pack('16sH',sys.argv[1].encode(),0x1001))
print('made',flush=True)
for line in sys.stdin: os.write(tun,bytes.fromhex(line)); print(flush=True)";

/// A tun that is up, and the process that writes packets into it; it goes with that process.
#[derive(Debug)]
pub struct Tun {
    child: Child,
    writer: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Tun {
    /// A tun device in `space`, by this name.
    #[track_caller]
    pub fn build(space: &Space, name: &str) -> Self {
        let mut command = space.command("python3");
        command.args(["-c", WRITER, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let writer = child.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        answers.read_line(&mut String::new()).expect("a tun");
        space.output(&format!("ip link set {name} up"));
        Self { child, writer, answers }
    }

    /// Packets arrive there; returns once the kernel has taken all of them.
    #[track_caller]
    pub fn write(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            let digits: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(self.writer, "{digits}").expect("a writer");
            self.answers.read_line(&mut String::new()).expect("an answer");
        }
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
