//! Pings sent on behalf of clients.

use std::{sync::mpsc::Sender, time::Duration};

use transport::Nanos;

use crate::{Address, BrokerCarrier, Engine, LinkError, broker::Answer};

/// Pings without a reply yet.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    next: u32,
    pending: Vec<Ping>,
}

#[derive(Debug)]
struct Ping {
    to: Address,
    sequence: u32,
    sent: Nanos,
    timeout: Duration,
    answer: Sender<Answer>,
}

impl Pings {
    /// Sends a ping; returns the reason if the request is invalid.
    pub(crate) fn start(
        &mut self,
        engine: &mut Engine<BrokerCarrier>,
        address: &str,
        bytes: u16,
        timeout: Duration,
        answer: &Sender<Answer>,
    ) -> Result<Option<String>, LinkError> {
        let Ok(to) = address.parse::<Address>() else { return Ok(Some(format!("{address} is no address of a node"))) };
        let max = engine.carrier().wire().payload_max;
        if bytes > max {
            return Ok(Some(format!("{bytes} bytes are more than a frame has: {max}")));
        }
        self.next = self.next.wrapping_add(1);
        let sent = engine.probe(to, self.next, &vec![0x5a; bytes.into()])?;
        self.pending.push(Ping { to, sequence: self.next, sent, timeout, answer: answer.clone() });
        Ok(None)
    }

    /// Answers clients whose reply arrived, or whose timeout expired.
    pub(crate) fn poll(&mut self, engine: &mut Engine<BrokerCarrier>) {
        let echoes: Vec<_> = engine.echoes().collect();
        self.pending.retain(|ping| {
            let reply = echoes.iter().find(|echo| (echo.peer, echo.sequence) == (ping.to, ping.sequence));
            let answer = match reply {
                Some(echo) => Answer::Ping(Some(echo.heard.saturating_sub(ping.sent))),
                None if engine.since(ping.sent) >= ping.timeout => Answer::Ping(None),
                None => return true,
            };
            // The client may have disconnected.
            let _ = ping.answer.send(answer);
            false
        });
    }
}
