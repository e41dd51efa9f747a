//! The routing decision: pure, no clock, no IO
