//! Division of a screen that is too small for all.

use model::route::RouteStatus;

/// Lines of the curve with its title.
const CURVE_LINES: u16 = 4;
/// Lines of the reasons that go before the curve and most events: title, heads, reasons.
const REASON_LINES: u16 = 5;

/// Lines of the parts; the reasons have what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) ports: u16,
    pub(super) curve: u16,
    pub(super) events: u16,
}

impl Shares {
    /// Divides `height` lines, of which the head takes `above`, and the events want `happened`.
    pub(super) fn of(height: u16, above: u16, happened: u16, status: &RouteStatus) -> Self {
        let left = height.saturating_sub(above);
        // Heads, the ports, and all together.
        let ports = (status.ports.len() as u16 + 2).min((left / 2).max(3));
        let reasons = status.rates.as_ref().map_or(0, |rates| rates.reasons.len() as u16);
        let reasons = REASON_LINES.min(reasons.max(1) + 2);
        let mut left = left.saturating_sub(ports + reasons);
        // A title, and a line at least.
        let events = if happened == 0 || left < 2 { 0 } else { (1 + happened).min(left) };
        left -= events;
        Self { ports, curve: if left >= CURVE_LINES { CURVE_LINES } else { 0 }, events }
    }
}
