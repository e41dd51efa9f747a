//! The router as a process sees it: real sockets on loopback, scripted nodes behind it, an app in
//! front of it. What a single hop decides is tested beside that hop.

mod bodies;
mod cancel;
mod deadlines;
mod drain;
mod errors;
mod fixture;
mod losses;
mod passing;
mod policies;
mod probes;
mod retry;
mod streaming;
mod stub;
