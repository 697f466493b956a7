//! Text, JSON and HTML of what was measured; knows model and nothing else.
