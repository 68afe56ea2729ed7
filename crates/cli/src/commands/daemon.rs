//! `hawkeye daemon`: looks after a whole machine.
