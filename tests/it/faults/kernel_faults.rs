//! The table of faults in the kernels of a GPU: `tests/data/faults/kernels.txt`, which describes its format.

use super::gpu_networks::NETWORKS;
use stepgraph::exec::cuda::plant::TextFault;
use stepgraph::model::read_preset;
use stepgraph::select::Kernels;

const TABLE: &str = include_str!("../../data/faults/kernels.txt");

/// A mistake in the text of the kernels, networks on which it has an effect, and the check that must find it for one of
/// them.
pub struct KernelFault {
    pub name: &'static str,
    pub text: TextFault,
    pub networks: Vec<&'static str>,
    /// The kernels of the networks.
    pub kernels: Kernels,
    pub check: &'static str,
}

impl KernelFault {
    /// The fault that some lines of the table describe.
    fn read(lines: &[&'static str]) -> Self {
        let &[name, facts, ref texts @ ..] = lines else { panic!("{lines:?} are too few lines") };
        let (places, check) = facts.split_once("; found by: ").unwrap_or_else(|| panic!("{name}: {facts}"));
        let (places, kernels) = match places.strip_suffix(" with general kernels") {
            Some(places) => (places, Kernels::General),
            None => (places, Kernels::Specialised),
        };
        let (file, networks) = places.strip_prefix("  in ").and_then(|p| p.split_once(" of ")).unwrap();
        // The fault exists as long as the process.
        let side = |mark: &str| -> &'static str {
            texts.iter().filter_map(|line| line.strip_prefix(mark)).collect::<Vec<_>>().join("\n").leak()
        };
        let (before, after) = (side("  - "), side("  + "));
        assert!(!before.is_empty() && !after.is_empty(), "{name} has both texts");
        let networks = networks.split(", ").map(network).collect();
        Self { name, text: TextFault { file, before, after }, networks, kernels, check }
    }
}

/// The network with this name.
fn network(name: &str) -> &'static str {
    let has_name = |text: &&str| read_preset(text).is_ok_and(|preset| preset.name == name);
    NETWORKS.into_iter().find(has_name).unwrap_or_else(|| panic!("no network is called {name}"))
}

/// All faults.
pub fn table() -> Vec<KernelFault> {
    let lines: Vec<&'static str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.is_empty()).filter(|fault| !fault.is_empty()).map(KernelFault::read).collect()
}
