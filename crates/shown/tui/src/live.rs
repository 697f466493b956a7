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
    DefaultTerminal, Frame,
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

/// The terminal. Dropping the value restores it; after a panic `ratatui::try_init`'s hook does.
struct Restored(Option<DefaultTerminal>);

impl Restored {
    fn draw(&mut self, view: &impl Screen) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |terminal| terminal.draw(|frame| view.draw(frame)).map(drop))
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        let Some(mut terminal) = self.0.take() else { return };
        // On a closed terminal showing the cursor fails. `Terminal::drop` would report that to the closed stderr, and panic.
        if terminal.show_cursor().is_err() {
            std::mem::forget(terminal);
        }
        let _ = ratatui::try_restore();
    }
}

/// Shows samples until the user leaves, the terminal is closed, `stop` is set, or `count` samples were shown. `next` returns the rates since its
/// last call.
///
/// # Errors
/// When the terminal cannot be used or `next` fails.
pub fn live<S: Screen, E: Classified + 'static>(
    view: S,
    next: impl FnMut() -> Result<S::Sample, E>,
    stop: &AtomicBool,
    count: Option<u64>,
) -> Result<(), LiveError<E>> {
    let terminal = Restored(Some(ratatui::try_init()?));
    match show(terminal, view, next, stop, count) {
        // The terminal was closed between two reads of its input.
        Err(LiveError::Terminal(_)) if wait_for_input(Duration::ZERO).is_ok_and(|input| input == Input::Gone) => Ok(()),
        result => result,
    }
}

fn show<S: Screen, E: Classified + 'static>(
    mut terminal: Restored,
    mut view: S,
    mut next: impl FnMut() -> Result<S::Sample, E>,
    stop: &AtomicBool,
    count: Option<u64>,
) -> Result<(), LiveError<E>> {
    terminal.draw(&view)?;
    let mut taken = 0;
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let since = last.elapsed();
        if since >= view.interval() {
            view.push(next().map_err(LiveError::Sample)?);
            terminal.draw(&view)?;
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
                Reaction::Redraw => terminal.draw(&view)?,
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
