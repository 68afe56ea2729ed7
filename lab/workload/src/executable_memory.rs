//! A mapping of generated machine code, as a program's text.

use crate::arch::{FUNCTION_BYTES, encode_function, synchronize_instructions};
use crate::error::MemoryCallError;
use crate::memory::{PAGE, WorkloadMemory};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

/// Functions of one cache line each; number N returns N. Nothing writes to the mapping.
pub(crate) struct ExecutableMemory(WorkloadMemory);

/// Writes the code of `bytes` (whole pages) to a file.
pub(crate) fn write_code(file: &mut File, bytes: usize) -> io::Result<()> {
    let functions = bytes / FUNCTION_BYTES;
    let mut page = Vec::with_capacity(PAGE);
    for number in 0..functions {
        page.extend_from_slice(&encode_function(number as u32));
        if page.len() == PAGE {
            file.write_all(&page)?;
            page.clear();
        }
    }
    Ok(())
}

impl ExecutableMemory {
    /// Maps a file with that code at a multiple of 2 MiB, as the kernel maps a program.
    pub(crate) fn map_code(file: &File, bytes: usize) -> Result<Self, MemoryCallError> {
        let place = WorkloadMemory::map_private_aligned(bytes, libc::PROT_NONE, 0)?;
        let start = place.start_address() as *mut libc::c_void;
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let (flags, descriptor) = (libc::MAP_PRIVATE | libc::MAP_FIXED, file.as_raw_fd());
        // SAFETY: the range is that of `place`, which is ours and in which no reference points.
        let mapped = unsafe { libc::mmap(start, bytes, protection, flags, descriptor, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(MemoryCallError::last_os_error("mmap of code", bytes));
        }
        Ok(Self(place))
    }

    /// Replaces the mapping by a copy in private memory at the same addresses, for which it asks
    /// for huge pages. This is what a program can do itself when it starts.
    pub(crate) fn copy_to_huge_pages(&mut self) -> Result<(), MemoryCallError> {
        let bytes = self.0.bytes();
        let words: Vec<u64> = (0..bytes).step_by(8).map(|at| self.0.read_word(at)).collect();
        let start = self.0.start_address() as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the range is ours, and nothing executes or refers to it now.
        let mapped =
            unsafe { libc::mmap(start, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(MemoryCallError::last_os_error("mmap of a copy", bytes));
        }
        self.0.advise_huge(bytes)?;
        for (word, value) in words.into_iter().enumerate() {
            self.0.write_word(word * 8, value);
        }
        // SAFETY: the range is ours; its code is complete.
        let done = unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_EXEC) };
        if done != 0 {
            return Err(MemoryCallError::last_os_error("mprotect of a copy", bytes));
        }
        synchronize_instructions(start.cast(), bytes);
        Ok(())
    }

    pub(crate) fn start_address(&self) -> u64 {
        self.0.start_address()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub(crate) fn count_functions(&self) -> usize {
        self.0.bytes() / FUNCTION_BYTES
    }

    /// Calls a function; returns its number, if the code is right.
    #[inline]
    pub(crate) fn call_function(&self, number: usize) -> u32 {
        assert!(number < self.count_functions(), "function outside the mapping");
        let address = self.0.start_address() as usize + number * FUNCTION_BYTES;
        // SAFETY: there is a function of that kind at each cache line of the mapping, which lives
        // as long as `self`.
        let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(address as *const ()) };
        function()
    }

    /// Compares all bytes with the code that was written. Returns the number of wrong bytes, and
    /// the address of the first wrong function.
    pub(crate) fn compare_with_written_code(&self) -> (u64, Option<u64>) {
        let (mut wrong, mut first) = (0, None);
        for number in 0..self.count_functions() {
            let code = encode_function(number as u32);
            for (at, expected) in code.chunks_exact(8).enumerate() {
                let found = self.0.read_word(number * FUNCTION_BYTES + at * 8).to_ne_bytes();
                if found != *expected {
                    wrong += 8;
                    let function = self.0.start_address() + (number * FUNCTION_BYTES) as u64;
                    first = first.or(Some(function));
                }
            }
        }
        (wrong, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::REGION;
    use crate::memory_file::create_memory_file;

    #[test]
    fn functions_return_their_numbers_also_from_a_copy() {
        let mut file = create_memory_file(0).expect("a file");
        write_code(&mut file, REGION).expect("the code can be written");
        let mut code = ExecutableMemory::map_code(&file, REGION).expect("it can be mapped");
        assert_eq!(code.start_address() % REGION as u64, 0);
        let last = code.count_functions() - 1;
        let call = |code: &ExecutableMemory| [0, 7, last].map(|n| code.call_function(n) as usize);
        assert_eq!(call(&code), [0, 7, last]);
        code.copy_to_huge_pages().expect("it can be copied");
        assert_eq!(call(&code), [0, 7, last]);
        assert_eq!(code.compare_with_written_code(), (0, None));
    }
}
