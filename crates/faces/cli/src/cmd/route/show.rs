//! What `route run` shows: a live view on a terminal, else lines or JSON.

use std::sync::{Arc, atomic::AtomicBool};

use model::route::{RouteEvent, RouteMode, RouteRates, RouteStatus};
use route::{
    RouteService,
    control::Command,
    outputs::{self, Message},
};
use serve::Client;
use tui::route::{Act, View};

use crate::{
    failure::Failure,
    output::{Output, Who},
    shown::{Samples, Show, has_colour, view},
};

pub(super) fn who() -> Who {
    Who { name: "the router", stop: "evenkeel route stop".to_owned() }
}

/// Shows the router until `over`; `wanted` is the mode that was asked for at the start.
pub(super) fn show(
    show: &Show,
    router: &Client<RouteService>,
    wanted: RouteMode,
    over: &AtomicBool,
) -> Result<(), Failure> {
    let samples = Samples::of(router, |status: &mut RouteStatus, before, seconds| {
        status.rates = Some(RouteRates::between(before, status, seconds));
    });
    if !show.interactive {
        let line = |status: &RouteStatus| format!("{}  {}", clock(), report::route_line(status));
        show.lines(samples, over, "route.status", line);
        return Ok(());
    }
    let act = |act| {
        // What comes of it is seen.
        router.send(Command::Mode(match act {
            Act::Standard => RouteMode::Standard,
            Act::Back => wanted,
        }));
    };
    view(View::new(show.interval, has_colour(), act), samples, over)
}

/// Tells what happens to the router.
pub(super) fn emit(show: &Show) -> impl FnMut(Message) + 'static {
    let (output, json, interactive) = (Arc::clone(&show.output), show.json, show.interactive);
    move |message| match message {
        // On the screen of the view there is no place for lines.
        _ if interactive => {}
        Message::Text(text) => output.message(&text),
        Message::Event(moment) if json => output.event(outputs::line(&moment)),
        Message::Event(moment) => event(&output, &moment.what),
    }
}

/// The time of day, as `shield run` prints it.
fn clock() -> String {
    jiff::Timestamp::now().strftime("%H:%M:%S UTC").to_string()
}

/// An event in words, with the frames that differ if it is a comparison.
fn event(output: &Output, what: &RouteEvent) {
    output.message(&format!("{}  {what:#}", clock()));
    if let RouteEvent::Compared(result) = what {
        result.examples.iter().for_each(|example| output.message(&format!("  {example}")));
    }
}
