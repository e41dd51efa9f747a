//! The router: one file per hop of a request
