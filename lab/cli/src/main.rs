//! The program `hawkeye-lab`; all of its code is in the library beside this file.

fn main() -> std::process::ExitCode {
    hawkeye_lab::run_command_line()
}
