//! What a profile says of the machine it was made on.

use midspan_runtime::library;
use serde::{Deserialize, Serialize};

/// The machine and what ran the model on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Model of the CPU, as the system calls it.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Instruction set.
    pub arch: String,
    /// Operating system.
    pub os: String,
    /// Version of ONNX Runtime.
    pub onnx_runtime: String,
}

impl Device {
    /// This machine.
    pub fn here() -> Self {
        let file = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_of(&file).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            arch: std::env::consts::ARCH.to_owned(),
            os: std::env::consts::OS.to_owned(),
            onnx_runtime: library::VERSION.to_owned(),
        }
    }
}

/// The CPU's name in the text of /proc/cpuinfo: x86 says "model name", boards of other makes often
/// only "Model" or "Hardware".
fn cpu_of(cpuinfo: &str) -> Option<&str> {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    ["model name", "Model", "Hardware", "cpu model"].iter().find_map(|name| {
        let (_, value) = fields().find(|(key, _)| key.trim() == *name)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_on_servers_and_boards() {
        assert_eq!(cpu_of("processor\t: 0\nmodel name\t: Some CPU\n"), Some("Some CPU"));
        assert_eq!(cpu_of("processor : 0\nModel : Board 4\n"), Some("Board 4"));
        assert_eq!(cpu_of("processor : 0\n"), None);
        let here = Device::here();
        assert!(here.cores >= 1 && !here.cpu.is_empty());
    }
}
