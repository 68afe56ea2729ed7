use super::*;

const LIKE_THE_MODEL: &str = "\
[    1.2] something of the console's
kernel 7.2.0
step start - 0 us=0 rate=1 zeroed=5 served=2 passed_over=0 lost=0 marked=3 free=5130\r
step idle - 1000 us=1000000 rate=2048 zeroed=2053 served=2 passed_over=0 lost=0 marked=2051 free=5130\r
step huge a 3 us=10 rate=1 zeroed=2053 served=1538 passed_over=0 lost=0 marked=515 free=3594
step file f 700 us=10 rate=1 zeroed=2053 served=1538 passed_over=0 lost=0 marked=515 free=2894
step base b 1024 us=10 rate=1 zeroed=2053 served=2050 passed_over=0 lost=0 marked=3 free=1870
step free a 1 us=10 rate=1 zeroed=2053 served=2050 passed_over=0 lost=3 marked=0 free=3406
";

fn value(report: &LiveReport, what: &str) -> (f64, String) {
    let row = report.row(what);
    (row.value, row.beside.clone())
}

#[test]
fn a_kernel_like_the_model_differs_nowhere() {
    let report = compare_with_recording(LIKE_THE_MODEL).expect("is a recording");
    let same = |percent: &str| format!("model {percent} %: +0.0 points");
    // One of four zeroed huge pages was left for twice as many base pages.
    for (what, expected) in [
        ("1.0 s idle: zeroed", (2048.0, "model 2048; 2048 by the rate".into())),
        ("3 huge pages: served zeroed", (100.0, same("100.0"))),
        ("700 pages of a file: took zeroed", (0.0, same("0.0"))),
        ("1024 base pages: served zeroed", (50.0, same("50.0"))),
    ] {
        assert_eq!(value(&report, what), expected);
    }
    let lost = value(&report, "zeroed pages that lost their mark").0;
    assert!((lost - 300.0 / 2048.0).abs() < 1e-9, "{lost}");
}

#[test]
fn an_invalid_recording_is_refused_with_the_reason() {
    let error = |text: &str| compare_with_recording(text).expect_err("is refused").to_string();
    assert!(error("").contains("no line `kernel RELEASE`"));
    assert!(error("kernel 7\nstep idle - 1 us=1").contains("line 2 is not a valid step"));
    let headless = LIKE_THE_MODEL.replace("step start", "stop start");
    assert!(error(&headless).contains("begin with a step `start`"));
}

#[test]
fn the_recorded_kernels_serve_huge_pages_and_spare_zeroed_ones_as_the_model_does() {
    for (kernel, text) in RECORDED {
        let report = compare_with_recording(text).expect("is a recording");
        let points = |beside: &str| -> f64 {
            let points = beside.split(": ").nth(1).expect("has a difference");
            let points = points.trim_end_matches(" points").parse();
            points.expect("is a number")
        };
        let mut compared = 0;
        for row in &report.rows {
            let spared = row.what.ends_with("took zeroed");
            if row.what.contains("huge pages") || spared {
                let most = if spared { 1.0 } else { 5.0 };
                assert!(points(&row.beside).abs() <= most, "{}: {report}", kernel);
                compared += 1;
            }
        }
        assert_eq!(compared, 8, "{report}");
        let after_idle = value(&report, "128 huge pages: served zeroed").0;
        assert!(after_idle >= 97.0, "{after_idle}");
    }
}
