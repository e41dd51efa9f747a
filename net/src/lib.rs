//! What router and node share of the network
