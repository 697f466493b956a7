//! Options of an end of a pair that TCP has and AF_UNIX has not.

use std::{fs, mem::offset_of, time::Duration};

use nix::libc::{
    AF_INET, AF_INET6, ENODATA, ENOPROTOOPT, EOPNOTSUPP, IP_OPTIONS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_DOMAIN,
    SO_PASSCRED, SO_PASSPIDFD, SO_PASSSEC, SO_PEERCRED, SO_PEERGROUPS, SO_PEERPIDFD, SO_PEERSEC, SO_PROTOCOL,
    SOL_SOCKET, TCP_CONGESTION, TCP_CORK, TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_INFO, TCP_KEEPCNT,
    TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK, TCP_SYNCNT,
    TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP, tcp_info,
};

use super::Figures;

/// Bytes of a segment: what TCP has, with time stamps, in a frame of 1500 bytes.
const SEGMENT_BYTES: i32 = 1448;
/// The state of an open connection (net/tcp_states.h).
const TCP_ESTABLISHED: u8 = 1;

/// SO_PASSRIGHTS, since Linux 6.16.
const SO_PASSRIGHTS: i32 = 83;

/// The options of the level SOL_SOCKET that are answered as TCP answers them. AF_UNIX would say who made the pair: the broker, which is root's.
pub(crate) const OF_SOCKET: [i32; 10] = [
    SO_DOMAIN,
    SO_PROTOCOL,
    SO_PEERCRED,
    SO_PEERGROUPS,
    SO_PEERSEC,
    SO_PEERPIDFD,
    SO_PASSCRED,
    SO_PASSSEC,
    SO_PASSPIDFD,
    SO_PASSRIGHTS,
];

/// True if an option is answered as by TCP. All others are those of AF_UNIX.
pub fn is_of_tcp(level: i32, name: i32) -> bool {
    matches!(level, IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6) || level == SOL_SOCKET && OF_SOCKET.contains(&name)
}

/// Sets such an option, without effect.
pub fn set_option(level: i32, name: i32) -> Result<(), i32> {
    match (level, name) {
        (SOL_SOCKET, SO_PASSCRED | SO_PASSSEC | SO_PASSPIDFD | SO_PASSRIGHTS) => Err(EOPNOTSUPP),
        (SOL_SOCKET, _) => Err(ENOPROTOOPT),
        _ => Ok(()),
    }
}

/// The value of such an option as getsockopt(2) gives it, of an end with IPv6 addresses or not.
pub fn option(level: i32, name: i32, is_v6: bool, figures: impl FnOnce() -> Option<Figures>) -> Result<Vec<u8>, i32> {
    let number = match (level, name) {
        // No process, and no user: -1 each.
        (SOL_SOCKET, SO_PEERCRED) => return Ok([0_i32, -1, -1].map(i32::to_ne_bytes).concat()),
        (SOL_SOCKET, SO_PEERGROUPS | SO_PEERPIDFD) => return Err(ENODATA),
        (SOL_SOCKET, SO_PEERSEC) => return Err(ENOPROTOOPT),
        (SOL_SOCKET, SO_PASSCRED | SO_PASSSEC | SO_PASSPIDFD | SO_PASSRIGHTS) => return Err(EOPNOTSUPP),
        (SOL_SOCKET, SO_DOMAIN) if is_v6 => AF_INET6,
        (SOL_SOCKET, SO_DOMAIN) => AF_INET,
        (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
        // Small writes leave at once.
        (IPPROTO_TCP, TCP_NODELAY) => 1,
        (IPPROTO_TCP, TCP_MAXSEG) => SEGMENT_BYTES,
        (IPPROTO_TCP, TCP_INFO) => return Ok(info(figures())),
        (IPPROTO_TCP, TCP_CONGESTION) => return Ok(congestion()),
        (IPPROTO_TCP, name) => usual(name).ok_or(ENOPROTOOPT)?,
        (IPPROTO_IP, IP_OPTIONS) => return Ok(Vec::new()),
        // Nothing of IP is set, for which zero stands.
        (IPPROTO_IP | IPPROTO_IPV6, _) => 0,
        _ => return Err(ENOPROTOOPT),
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// Linux's default of an option of TCP (tcp(7)).
fn usual(name: i32) -> Option<i32> {
    Some(match name {
        TCP_KEEPIDLE => 7200,
        TCP_KEEPINTVL => 75,
        TCP_KEEPCNT => 9,
        TCP_SYNCNT => 6,
        TCP_LINGER2 => 60,
        TCP_QUICKACK => 1,
        TCP_CORK | TCP_DEFER_ACCEPT | TCP_FASTOPEN | TCP_FASTOPEN_CONNECT | TCP_NOTSENT_LOWAT | TCP_USER_TIMEOUT
        | TCP_WINDOW_CLAMP => 0,
        _ => return None,
    })
}

/// Name of the default congestion control, in the 16 bytes of TCP_CA_NAME_MAX.
fn congestion() -> Vec<u8> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    let mut name = text.trim().as_bytes().to_vec();
    name.resize(16, 0);
    name
}

/// The value of TCP_INFO. Fields that link does not have are zero.
fn info(figures: Option<Figures>) -> Vec<u8> {
    // The broker is gone.
    let unknown = Figures { resent: 0, round_trip: Duration::ZERO, frame_bytes: SEGMENT_BYTES as u16 };
    let figures = figures.unwrap_or(unknown);
    let mut info = vec![0; size_of::<tcp_info>()];
    let mut put = |at: usize, value: u64| {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    };
    put(offset_of!(tcp_info, tcpi_snd_mss), figures.frame_bytes.into());
    put(offset_of!(tcp_info, tcpi_rcv_mss), figures.frame_bytes.into());
    put(offset_of!(tcp_info, tcpi_rtt), figures.round_trip.as_micros() as u64);
    put(offset_of!(tcp_info, tcpi_total_retrans), figures.resent);
    info[offset_of!(tcp_info, tcpi_state)] = TCP_ESTABLISHED;
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the kernel says of TCP, the end says.
    #[test]
    fn who_is_at_the_other_end_is_shown_as_tcp_shows_it() {
        use nix::{
            errno::Errno,
            sys::socket::{getsockopt, sockopt::PeerCredentials},
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let who = getsockopt(&tcp, PeerCredentials).unwrap();
        let credentials = option(SOL_SOCKET, SO_PEERCRED, false, || None).unwrap();
        let number = |at: usize| i32::from_ne_bytes(credentials[at..at + 4].try_into().unwrap());
        assert_eq!((who.pid(), who.uid().cast_signed(), who.gid().cast_signed()), (number(0), number(4), number(8)));
        assert_eq!(option(SOL_SOCKET, SO_PEERPIDFD, false, || None), Err(Errno::ENODATA as i32));
        assert_eq!(set_option(SOL_SOCKET, SO_PASSCRED), Err(Errno::EOPNOTSUPP as i32));
        assert_eq!((set_option(SOL_SOCKET, SO_PEERCRED), set_option(IPPROTO_TCP, 1)), (Err(ENOPROTOOPT), Ok(())));
        assert!(OF_SOCKET.into_iter().all(|name| is_of_tcp(SOL_SOCKET, name)));
    }

    #[test]
    fn an_end_answers_as_a_socket_of_tcp() {
        let value = |level, name| option(level, name, false, || None).ok();
        assert_eq!(value(SOL_SOCKET, SO_DOMAIN), Some(AF_INET.to_ne_bytes().to_vec()));
        assert_eq!(option(SOL_SOCKET, SO_DOMAIN, true, || None), Ok(AF_INET6.to_ne_bytes().to_vec()));
        assert_eq!(value(IPPROTO_IP, IP_OPTIONS), Some(Vec::new()));
        assert_eq!(value(IPPROTO_TCP, TCP_INFO).map(|info| info[0]), Some(TCP_ESTABLISHED), "whoever tells of it");
        assert_eq!(value(IPPROTO_TCP, TCP_KEEPIDLE), Some(7200_i32.to_ne_bytes().to_vec()));
        assert_eq!(value(IPPROTO_TCP, TCP_CONGESTION).map(|name| name.len()), Some(16));
        assert_eq!(value(IPPROTO_TCP, 12345), None);
        assert!(is_of_tcp(SOL_SOCKET, SO_PROTOCOL) && !is_of_tcp(SOL_SOCKET, nix::libc::SO_ERROR));
        let figures = Figures { resent: 3, round_trip: Duration::from_micros(70), frame_bytes: 1468 };
        let info = option(IPPROTO_TCP, TCP_INFO, false, || Some(figures)).unwrap();
        // The layout that programs know: state, then at 16 the segment, at 68 the round trip, at 100 the segments sent again.
        let number = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
        assert_eq!((info[0], number(16), number(68), number(100)), (1, 1468, 70, 3));
    }
}
