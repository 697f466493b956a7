//! Metrics in a file and over HTTP.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::Duration,
};

use model::{Classified, ErrorClass, shield::Totals};
use serve::{
    MetricsFile, MetricsServer, ServeError,
    metrics::{Metrics, Notation},
};
use testbed::wait;

fn some() -> Metrics {
    let mut metrics = Metrics::default();
    metrics.add_counters(&[("interface", "eth0")], &Totals { passed: 10, ..Totals::default() }, Totals::COUNTERS);
    metrics
}

#[test]
fn the_file_is_replaced_whole_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shield.prom");
    let file = MetricsFile::start(&path).unwrap();
    file.set(Metrics::default());
    wait("the file", || path.exists());
    let all = some();
    file.set(all.clone());
    wait("the newer text", || fs::read_to_string(&path).is_ok_and(|text| text == all.text(Notation::Text)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o444, 0);
    file.remove();
    assert!(!path.exists());
}

/// Whatever is in the way is told, once, and neither written to nor removed.
fn in_the_way(path: &Path) {
    let file = MetricsFile::start(path).unwrap();
    let reported = || {
        file.set(some());
        file.failures().count()
    };
    wait("it is told", || reported() > 0);
    assert_eq!((0..5).map(|_| (reported(), thread::sleep(Duration::from_millis(20))).0).sum::<usize>(), 0, "once");
    file.remove();
}

#[test]
fn a_pipe_or_a_foreign_folder_is_no_metrics_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for special in [pipe.as_path(), Path::new("/dev/null")] {
        let refused = MetricsFile::start(special).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Usage, "at the start: {refused}");
    }
    assert!(pipe.exists());
    in_the_way(&folder.path().join("no/such"));
    // What a name like PATH.PID would be written through.
    let target = folder.path().join("target");
    fs::write(&target, "kept").unwrap();
    let path = folder.path().join("shield.prom");
    std::os::unix::fs::symlink(&target, folder.path().join(format!("shield.prom.{}", std::process::id()))).unwrap();
    let file = MetricsFile::start(&path).unwrap();
    file.set(some());
    wait("the file", || path.exists());
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}

#[test]
fn a_file_of_the_same_name_behind_a_link_of_others_is_not_removed() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::set_permissions(theirs.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let folder = theirs.path().join("in");
    fs::create_dir(&folder).unwrap();
    fs::write(ours.path().join("shield.prom"), "kept").unwrap();
    let file = MetricsFile::start(&folder.join("shield.prom")).unwrap();
    file.set(some());
    wait("the file", || folder.join("shield.prom").exists());
    fs::rename(&folder, theirs.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(ours.path(), &folder).unwrap();
    file.remove();
    assert_eq!(fs::read_to_string(ours.path().join("shield.prom")).unwrap(), "kept");
}

fn ask(server: &MetricsServer, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_port_answers_on_loopback_in_the_notation_that_is_requested() {
    let server = MetricsServer::start(0).unwrap();
    let all = some();
    server.set(all.clone());
    assert!(server.address().ip().is_loopback());
    let (head, body) = ask(&server, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!(body, all.text(Notation::Text));
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let (head, body) = ask(&server, &format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n{accept}\r\n\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("openmetrics-text; version=1.0.0"), "{head}");
    assert_eq!(body, all.text(Notation::OpenMetrics));
    assert!(body.ends_with("# EOF\n"));
    let status = |request: &str| ask(&server, request).0.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n"), "421", "a page from elsewhere");
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n"), "421");
    assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n"), "200");
    assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
    let (head, body) = ask(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    let taken = MetricsServer::start(server.address().port()).unwrap_err();
    assert!(matches!(taken, ServeError::MetricsPort { port, .. } if port == server.address().port()), "{taken}");
}

/// True if the other end has closed it.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(0) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

#[test]
fn who_says_nothing_holds_up_nobody_and_makes_room_when_more_come() {
    let server = MetricsServer::start(0).unwrap();
    server.set(some());
    let connect = || TcpStream::connect(server.address()).unwrap();
    let mut silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    silent[0].write_all(&[0xff; 4096]).unwrap();
    silent[1].write_all(b"G").unwrap();
    let request = "GET / HTTP/1.1\r\n\r\n";
    assert!(ask(&server, request).0.starts_with("HTTP/1.1 200 "));
    assert!(!silent.iter().any(is_closed), "the answer did not wait for the end of any of them");
    // Far more than are served at a time.
    silent.extend((0..200).map(|_| connect()));
    assert!(ask(&server, request).0.starts_with("HTTP/1.1 200 "));
    wait("the oldest are gone", || silent[..100].iter().all(is_closed));
}
