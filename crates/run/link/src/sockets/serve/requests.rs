//! Programs that come to ask, and what they are answered.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{
    getsockopt,
    sockopt::{AcceptConn, PeerCredentials},
};
use sys::socket_kind::{SocketKind, is_established_tcp, is_fresh_tcp, network_namespace};

use super::{Sent, Sockets, Stage, wishes::Connects};
use crate::{
    claim::Talk,
    sockets::{
        ask::{Figures, Question, Reply},
        ids::{Cookie, EntryId},
        places::local,
        questions::no_wait,
    },
};

/// A program that does not wait is answered within this time; one that does, within that.
const IMPATIENT: Duration = Duration::from_millis(200);
const PATIENT: Duration = Duration::from_secs(10);
/// Programs that are let in at once: those that come in a loop do not hold up connections.
const PROGRAMS: usize = 16;

impl Sockets {
    /// Programs have come to ask. One user cannot hold up the others: so many are let in at once, so many of a user wait at the most, and none for long
    /// with nothing said.
    pub(super) fn on_programs(&mut self) {
        self.requests.has_more = false;
        for _ in 0..PROGRAMS {
            let Ok(fd) = sys::fds::accept(&self.requests.socket) else { return };
            let uid = getsockopt(&fd, PeerCredentials).ok().map(|who| who.uid());
            let user = uid.and_then(|uid| self.guests.user(uid));
            let Some((asks, user)) = user.and_then(|user| Some((self.guests.asks(&user)?, user))) else {
                self.requests.disposer.dispose(fd);
                continue;
            };
            let talk = Sent::new(Talk::new(fd), &user);
            let id = self.table.draw();
            if no_wait(&talk).is_ok() && self.watch(talk.as_fd(), id).is_ok() {
                self.table.all.insert(id, Stage::Asks { talk, asks, since: Instant::now() });
            }
        }
        self.requests.has_more = true;
    }

    pub(super) fn on_question(&mut self, id: EntryId) {
        let Some(Stage::Asks { talk, asks, since }) = self.table.all.remove(id) else { return };
        let (question, fds) = match talk.hear_stranger::<Question>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.table.all.insert(id, Stage::Asks { talk, asks, since });
                return;
            }
            Ok(heard) => heard,
            // Gone.
            Err(_) => return,
        };
        // It is closed later by its user's thread: its hang-up must not pass for one of the connection, which gets the same number.
        self.unwatch(&talk);
        let mut fds: Vec<_> = fds.into_iter().map(|fd| Sent::new(fd, talk.user())).collect();
        let Some(question) = question else { return };
        let count = if question == Question::Take { 2 } else { 1 };
        let shown = fds.pop().filter(|fd| fds.len() + 1 == count && self.is_meant(&question, fd));
        let Some(shown) = shown else {
            drop(fds);
            return talk.answer(Reply::Tcp);
        };
        let reply = match question {
            Question::Listens => {
                if let Some((at, _)) = local(&shown) {
                    // Without the file a broker that starts again does not know of it.
                    let _ = self.cluster.listening.add(&shown, at.port(), talk.user().uid);
                }
                Reply::Tcp
            }
            Question::Accepted => match self.on_accepted(&talk, &shown) {
                Some(()) => return,
                None => Reply::Tcp,
            },
            Question::Figures => self.figures(&shown).map_or(Reply::Tcp, Reply::Figures),
            Question::Ended => {
                let cookie = Cookie::of(&shown).ok();
                let broke = self.broke.iter().find(|(of, _)| Some(*of) == cookie);
                broke.map_or(Reply::Tcp, |&(_, error)| Reply::Broke(error as i32))
            }
            Question::Offer(_)
            | Question::IsOffered
            | Question::Take
            | Question::Delivered
            | Question::Moved
            | Question::Returned
            | Question::Did(_) => match self.on_direct(&talk, &shown, fds.pop(), &question) {
                Some(reply) => reply,
                None => return,
            },
            Question::Connect { to, is_patient } => {
                let asked = Instant::now();
                let until = asked + if is_patient { PATIENT } else { IMPATIENT };
                let (looked, stream, bytes) = (None, None, Vec::new());
                let wish = Connects { talk, _asks: asks, tcp: shown, to, asked, until, looked, stream, bytes };
                self.table.wishes.insert(id);
                self.table.all.insert(id, Stage::Connects(Box::new(wish)));
                return;
            }
        };
        drop((shown, fds));
        talk.answer(reply);
    }

    /// Is a descriptor of this network namespace, and what a question has to be about? Nothing of this waits, whatever it is.
    fn is_meant(&self, question: &Question, fd: &Sent<OwnedFd>) -> bool {
        let Ok(kind) = SocketKind::of(fd) else { return false };
        // A socket of another network namespace could have any address.
        if !network_namespace(fd).is_ok_and(|of| of == self.requests.namespace) {
            return false;
        }
        match question {
            // Only Multipath TCP that nothing was done with yet does not say its state.
            Question::Connect { .. } => {
                kind.is_tcp() && is_fresh_tcp(fd).unwrap_or(kind.protocol == nix::libc::IPPROTO_MPTCP)
            }
            Question::Listens => kind.is_tcp() && getsockopt(fd, AcceptConn).unwrap_or(false),
            Question::Accepted => kind.is_tcp() && is_established_tcp(fd).unwrap_or(false),
            _ => kind.is_unix_stream(),
        }
    }

    fn figures(&self, end: &Sent<OwnedFd>) -> Option<Figures> {
        let id = self.table.ends.get(Cookie::of(end).ok()?)?;
        let (resent, round_trip) = match self.table.all.get(id)? {
            Stage::Open { flow, .. } => (self.engine.counts(flow.stream)?.resent, self.engine.round_trip(flow.stream)),
            Stage::Direct { direct, .. } => direct.figures(),
            _ => return None,
        };
        let round_trip = round_trip.unwrap_or_default();
        Some(Figures { resent, round_trip, frame_bytes: self.engine.carrier().wire().payload_max })
    }
}
