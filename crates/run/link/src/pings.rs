//! Probes that others asked the broker to send.

use std::{sync::mpsc::Sender, time::Duration};

use transport::Nanos;

use crate::{Address, BrokerCarrier, Engine, LinkError, broker::Answer};

/// Pings without an answer yet.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    next: u32,
    waiting: Vec<Ping>,
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
    /// Sends one; why not, if it cannot.
    pub(crate) fn start(
        &mut self,
        engine: &mut Engine<BrokerCarrier>,
        address: &str,
        bytes: u16,
        timeout: Duration,
        answer: &Sender<Answer>,
    ) -> Result<Option<String>, LinkError> {
        let Ok(to) = address.parse::<Address>() else { return Ok(Some(format!("{address} is no address of a node"))) };
        let most = engine.carrier().wire().payload_max;
        if bytes > most {
            return Ok(Some(format!("{bytes} bytes are more than a frame has: {most}")));
        }
        self.next = self.next.wrapping_add(1);
        let sent = engine.probe(to, self.next, &vec![0x5a; bytes.into()])?;
        self.waiting.push(Ping { to, sequence: self.next, sent, timeout, answer: answer.clone() });
        Ok(None)
    }

    /// Gives out the answers that came, and gives up those that did not in time.
    pub(crate) fn turn(&mut self, engine: &mut Engine<BrokerCarrier>) {
        let echoes: Vec<_> = engine.echoes().collect();
        self.waiting.retain(|ping| {
            let came = echoes.iter().find(|echo| (echo.peer, echo.sequence) == (ping.to, ping.sequence));
            let answer = match came {
                Some(echo) => Answer::Ping(Some(echo.heard.saturating_sub(ping.sent))),
                None if engine.since(ping.sent) >= ping.timeout => Answer::Ping(None),
                None => return true,
            };
            // Whoever asked may have gone.
            let _ = ping.answer.send(answer);
            false
        });
    }
}
