//! The program `hawkeye`; all of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    hawkeye::run()
}
