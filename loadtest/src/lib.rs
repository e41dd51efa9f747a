//! Load drivers and the link emulator
