//! The loop around the view: sample, draw, listen to keys. It puts the terminal back however it ends.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use model::{Classified, ErrorClass};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::{
    Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};

/// The longest wait before the flag that a signal sets is looked at.
const SIGNAL_PERIOD: Duration = Duration::from_millis(250);

/// The answer of a view to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    Redraw,
    Nothing,
    Quit,
}

/// A live view: state that samples and keys change, and how it is drawn.
pub trait Screen {
    /// A sample of what it shows.
    type Sample;
    /// Time between two samples.
    fn interval(&self) -> Duration;
    fn push(&mut self, sample: Self::Sample);
    /// Does what a key without modifiers means.
    fn press(&mut self, key: KeyCode) -> Reaction;
    fn draw(&self, frame: &mut Frame<'_>);

    /// Does what a key means: Ctrl-C and Ctrl-D leave every view.
    fn key(&mut self, key: KeyEvent) -> Reaction {
        match (key.modifiers.contains(KeyModifiers::CONTROL), key.code) {
            (false, code) => self.press(code),
            (true, KeyCode::Char('c' | 'd')) => Reaction::Quit,
            (true, _) => Reaction::Nothing,
        }
    }
}

/// Errors that end the live view.
#[derive(Debug, thiserror::Error)]
pub enum LiveError<E: Classified + 'static> {
    #[error("cannot use the terminal: {0}; `--once` prints plain text")]
    Terminal(#[from] io::Error),
    #[error(transparent)]
    Sample(E),
}

impl<E: Classified + 'static> Classified for LiveError<E> {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Terminal(_) => ErrorClass::Lacking,
            Self::Sample(e) => e.class(),
        }
    }
}

/// Puts the terminal back when the view ends, be it by an error. `ratatui::try_init` sees to panics.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that has gone away cannot be put back.
        let _ = ratatui::try_restore();
    }
}

/// Shows samples until a key leaves, `stop` is set, or `count` samples were shown. `next` gives the rates since it was
/// called last.
///
/// # Errors
/// When the terminal cannot be used or `next` fails.
pub fn live<S: Screen, E: Classified + 'static>(
    mut view: S,
    mut next: impl FnMut() -> Result<S::Sample, E>,
    stop: &AtomicBool,
    count: Option<u64>,
) -> Result<(), LiveError<E>> {
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    terminal.draw(|frame| view.draw(frame))?;
    let mut taken = 0;
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let since = last.elapsed();
        if since >= view.interval() {
            view.push(next().map_err(LiveError::Sample)?);
            terminal.draw(|frame| view.draw(frame))?;
            taken += 1;
            if count.is_some_and(|n| taken >= n) {
                break;
            }
            // The next one is due a whole interval after this one was, unless that has passed already.
            last = if since < 2 * view.interval() { last + view.interval() } else { Instant::now() };
            continue;
        }
        if wait_for_input((view.interval() - since).min(SIGNAL_PERIOD))? == Input::Gone {
            break;
        }
        // Also without input: a changed size comes by a signal.
        while event::poll(Duration::ZERO)? {
            let reaction = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => view.key(key),
                Event::Resize(..) => Reaction::Redraw,
                _ => Reaction::Nothing,
            };
            match reaction {
                Reaction::Quit => return Ok(()),
                Reaction::Redraw => {
                    terminal.draw(|frame| view.draw(frame))?;
                }
                Reaction::Nothing => {}
            }
        }
    }
    Ok(())
}

/// The keyboard after a wait.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    /// Perhaps a key, perhaps nothing.
    There,
    /// The terminal was closed.
    Gone,
}

/// Waits for a key. crossterm must not be asked while the terminal is closed: it reads the end of the file for ever.
fn wait_for_input(timeout: Duration) -> io::Result<Input> {
    let stdin = io::stdin();
    let mut keyboard = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(timeout.max(Duration::from_millis(1))).unwrap_or(PollTimeout::from(1000u16));
    match poll(&mut keyboard, timeout) {
        Ok(_) | Err(nix::Error::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    let gone = keyboard[0].revents().is_some_and(|r| r.intersects(closed));
    Ok(if gone { Input::Gone } else { Input::There })
}
