//! A router that runs beside a test, in a thread of its own.

use std::time::Duration;

use model::route::{RouteEvent, RouteMode};
use route::{RouteSettings, Router, rules::RouteRules};
use testbed::{Beside, Space};

/// Asks the router.
pub(crate) type Control<'a> = Beside<'a, Router, RouteEvent>;

/// Does `work` while a router runs in `space`, in this mode.
pub(crate) fn beside<T>(
    space: &Space,
    settings: RouteSettings,
    rules: Option<RouteRules>,
    mode: RouteMode,
    work: impl FnOnce(&Control<'_>) -> T,
) -> T {
    let start = || {
        let mut router = Router::start_with(RouteSettings { mode, ..settings }, rules).unwrap().0;
        assert_eq!(router.obstacles(), []);
        router.set_mode(mode).unwrap();
        router
    };
    testbed::beside(space, start, |router| router.poll_within(Duration::from_millis(5)).unwrap(), work)
}
