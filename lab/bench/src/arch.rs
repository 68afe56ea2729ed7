//! What measurements and programs need of each processor architecture, one file each.
//!
//! Reads of memory can be timed one by one where reading the clock waits for them. On x86-64 it
//! does (`rdtsc_ordered`, arch/x86/include/asm/msr.h). That was not tried on arm64 hardware.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{QEMU_PACKAGE, run_additions, zero_page_past_caches};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{QEMU_PACKAGE, run_additions, zero_page_past_caches};
