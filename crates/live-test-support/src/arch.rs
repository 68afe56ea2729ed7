//! What virtual machines need of each processor architecture.

/// An architecture's usual machine in QEMU.
pub(crate) struct QemuBoard {
    /// The architecture, as in `std::env::consts::ARCH`.
    pub(crate) architecture: &'static str,
    /// The machine's name.
    pub(crate) name: &'static str,
    /// The address of the first byte of memory.
    pub(crate) memory_start: u64,
}

pub(crate) const QEMU_BOARDS: [QemuBoard; 2] = [
    QemuBoard { architecture: "x86_64", name: "pc", memory_start: 0 },
    QemuBoard { architecture: "aarch64", name: "virt", memory_start: 1 << 30 },
];
