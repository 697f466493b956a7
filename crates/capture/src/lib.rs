//! Capture: members, filters, pcapng, automatic choice of the backend.
