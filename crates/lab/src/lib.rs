//! Network namespaces, links and boxes under test, each gone when dropped.
