//! The end of physical memory.

/// Frames up to the end of the last zone; `None` if `/proc/zoneinfo` cannot be read.
pub(super) fn physical_frames() -> Option<u64> {
    last_frame(&std::fs::read_to_string("/proc/zoneinfo").ok()?)
}

/// Parses the text of `/proc/zoneinfo`; `None` if its contents are unexpected.
fn last_frame(zoneinfo: &str) -> Option<u64> {
    let mut spanned = 0;
    let mut end = None;
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|n| n.parse().ok())) {
            (Some("spanned"), Some(frames)) => spanned = frames,
            (Some("start_pfn:"), Some(start)) if spanned > 0 => {
                end = end.max(Some(start + spanned));
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_with_its_last_zone() {
        let text = "Node 0, zone      DMA\n  pages free     2816\n        spanned  4095\n  start_pfn:           1\n\
                    Node 0, zone   Normal\n        spanned  100\n  start_pfn:           1048576\n\
                    Node 0, zone    DMA32\n        spanned  7\n  start_pfn:           4096\n\
                    Node 1, zone  Movable\n        spanned  0\n  start_pfn:           0\n";
        assert_eq!(last_frame(text), Some(1_048_676));
        assert_eq!(last_frame("Node 0"), None);
    }
}
