//! Whole fleets on loopback, and the tidy checks
