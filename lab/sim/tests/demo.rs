//! The two scenarios that `hawkeye demo` shows where the kernel doesn't allow managing.

use hawkeye_sim::SimError;
use hawkeye_sim::demo::{self, BUDGET, PolicyResult};

#[test]
fn hawkeye_promotes_the_hot_part_and_linux_the_first() -> Result<(), SimError> {
    let result = demo::hot_first(1)?;
    println!("{result:#?}");
    let by = |name: &str| -> Vec<&PolicyResult> {
        result
            .policies
            .iter()
            .filter(|p| p.policy == name)
            .collect()
    };
    let [none, linux, hawkeye] = [by("none"), by("linux"), by("hawkeye-g")];
    let ([none], [linux], [hawkeye]) = (&none[..], &linux[..], &hawkeye[..]) else {
        panic!("one result each");
    };
    assert_eq!((none.promoted, none.gain_percent), (0, 0.0));
    assert_eq!(none.accesses_per_s, result.base_accesses_per_s);
    assert_eq!((linux.promoted, linux.promoted_hot), (BUDGET, 0));
    assert_eq!((hawkeye.promoted, hawkeye.promoted_hot), (BUDGET, BUDGET));
    // 90 % of accesses are faster: 90 % of the time that can be saved, 83 % of the accesses/s.
    assert!(hawkeye.gain_percent > 82.0, "{hawkeye:?}");
    assert!(linux.gain_percent < 2.0, "{linux:?}");
    assert!(hawkeye.mean_accesses_per_s > linux.mean_accesses_per_s);
    Ok(())
}

#[test]
fn a_bloated_program_is_left_with_what_it_uses() -> Result<(), SimError> {
    let result = demo::bloated(1)?;
    println!("{result:#?}");
    assert_eq!(result.rss_before_bytes, 1 << 30);
    assert_eq!(result.used_bytes, 512 * 100 * 4096);
    assert_eq!(result.rss_after_bytes, result.used_bytes);
    assert_eq!(
        result.recovered_bytes,
        result.rss_before_bytes - result.rss_after_bytes
    );
    assert_eq!(result.split, 512);
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_result() -> Result<(), SimError> {
    assert_eq!(demo::hot_first(7)?, demo::hot_first(7)?);
    assert_eq!(demo::bloated(7)?, demo::bloated(7)?);
    Ok(())
}
