//! The node: queue, executor, exits, offload; role edge or cloud
