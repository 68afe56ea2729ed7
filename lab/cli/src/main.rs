//! The program `hawkeye-lab`; all of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    hawkeye_lab::run()
}
