//! The page, opened and used in a browser.

use crate::browser::Browser;
use crate::recordings::{folder, hawkeye, record, record_with_forged_texts};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::path::Path;

/// Number of shades in the map, and a sum over its pixels.
fn picture(browser: &mut Browser) -> (u64, u64) {
    let found = browser.evaluate(
        "(() => { const c = document.querySelector('#map canvas');
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            const shades = new Set(); let sum = 0;
            for (let i = 0; i < d.length; i += 4) { shades.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); sum += d[i]; }
            return [shades.size, sum]; })()",
    );
    let number = |at: usize| found[at].as_u64().expect("a number");
    (number(0), number(1))
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let found = browser.evaluate(&format!("document.querySelector({selector:?}).textContent"));
    found.as_str().expect("a text").to_owned()
}

/// A browser that shows the page of a recording without an exception; `None`: there is no browser.
fn browser_with_page(name: &str, record: fn(&Path)) -> Option<Browser> {
    let folder = folder(name);
    let (path, page) = (folder.join("r.parquet"), folder.join("r.html"));
    record(&path);
    let paths = [&path, &page].map(|path| path.to_str().expect("the text is UTF-8"));
    let made = hawkeye(&["report", paths[0], "--html", paths[1]]);
    assert!(made.status.success());
    let mut browser = Browser::start(&folder.join("profile"))?;
    browser.open(&page);
    assert_eq!(browser.exceptions, Vec::<String>::new());
    Some(browser)
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(mut browser) = browser_with_page("page", record) else {
        return this_test!().skip("chromium is not installed");
    };
    let title = browser.evaluate("document.title");
    assert_eq!(title, "HawkEye: redis-server on web-7");
    let kinds = text(&mut browser, "#memory-kinds tbody");
    assert_eq!(
        kinds,
        "private192 MiB64 MiBshared64 MiB01 file2 in allfile64 MiB0device 0:1 inode 777, 8"
    );
    let (shades, coverage) = picture(&mut browser);
    assert!(shades > 20, "{shades} shades");

    // The scale gets steadily darker: it is readable without colour.
    let light = browser.evaluate(
        "[...document.querySelectorAll('#map svg rect[fill^=rgb]')].map(r => r.getAttribute('fill').match(/\\d+/g))
            .map(([r, g, b]) => .2126 * r + .7152 * g + .0722 * b)",
    );
    let light = light.as_array().expect("a list of shades").iter();
    let light: Vec<f64> = light.filter_map(Value::as_f64).collect();
    assert!(light.len() > 9, "{light:?}");
    let darker = |pair: &[f64]| pair[0] > pair[1];
    assert!(light.windows(2).all(darker), "{light:?}");

    browser.click("#view-huge");
    let pressed = "document.querySelector('#view-huge').getAttribute('aria-pressed')";
    assert_eq!(browser.evaluate(pressed), "true");
    assert_ne!(picture(&mut browser).1, coverage);
    browser.click("#view-coverage");
    assert_eq!(picture(&mut browser).1, coverage);

    // The page describes what is under the mouse; for a decision also its reason.
    let middle = browser.center_of("#map canvas");
    browser.mouse("mouseMoved", middle);
    let tip = text(&mut browser, "#tip");
    assert!(tip.contains("coverage 50 %"), "{tip}");
    let mark = browser.center_of("#map .mark[data-event=promoted]");
    browser.mouse("mouseMoved", mark);
    let tip = text(&mut browser, "#tip");
    assert!(tip.contains("the test said so"), "{tip}");
    browser.click("#show-marks");
    let marks = browser.evaluate("document.querySelectorAll('#map .mark').length");
    assert_eq!(marks, 0);

    // Zooms all charts to a part of the time, and back.
    let (x, y) = browser.center_of("#overhead svg");
    browser.drag((x - 100.0, y), (x + 100.0, y));
    let range = text(&mut browser, "#range");
    assert!(range.contains(" to "), "{range}");
    assert_ne!(picture(&mut browser).1, coverage);
    browser.click("#reset");
    assert_eq!(text(&mut browser, "#range"), "");
    assert_eq!(picture(&mut browser).1, coverage);
    let (x, y) = browser.center_of("#map canvas");
    browser.drag((x - 100.0, y - 60.0), (x + 100.0, y + 60.0));
    let labels = "document.querySelectorAll('#map text.mono')[0].textContent";
    assert_ne!(browser.evaluate(labels), "7f0000000000");
    browser.click("#reset");
    assert_eq!(browser.evaluate(labels), "7f0000000000");

    browser.click("#processes tr[data-pid='8']");
    let selected = "document.querySelector('tr[aria-selected=true]').dataset.pid";
    assert_eq!(browser.evaluate(selected), "8");
    assert_ne!(picture(&mut browser).1, coverage);
    assert_eq!(browser.exceptions, Vec::<String>::new());
}

#[test]
fn forged_texts_do_no_harm_to_the_page() {
    let Some(mut browser) = browser_with_page("forged", record_with_forged_texts) else {
        return this_test!().skip("chromium is not installed");
    };
    assert_eq!(browser.evaluate("document.title"), "HawkEye: redis-server on {{data}}");
    let marks = "document.querySelectorAll('#map .mark[data-event=constructor]').length";
    assert_ne!(browser.evaluate(marks), 0);
}
