//! Reservations: memory that is kept for pages around one that was touched.

use super::ItaniumMachine;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct FrameReservation {
    order: u8,
    frame: u32,
    /// By place: whether a page has had this frame, which never returns to the reservation.
    handed_out: Vec<bool>,
    unused: u32,
    last: u64,
}

/// By process and first page. Entries without reserved frames stay: their order limits growth.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameReservations {
    all: BTreeMap<(u32, u64), FrameReservation>,
    /// Number of reserved frames that were not handed out.
    pub(super) unused: u32,
    clock: u64,
}

impl FrameReservations {
    pub(super) fn reservation_order_around(&self, process: u32, page: u64) -> Option<u8> {
        let first = self.first_page_of_reservation(process, page)?;
        let reservation = self.all.get(&(process, first))?;
        Some(reservation.order)
    }

    /// The first page of the reservation around a page, even if it has no frame left for that page.
    pub(super) fn first_page_of_reservation(&self, process: u32, page: u64) -> Option<u64> {
        let mut before = self.all.range((process, 0)..=(process, page));
        let ((_, first), reservation) = before.next_back()?;
        (page < first + (1 << reservation.order)).then_some(*first)
    }

    pub(super) fn overlaps_reservation(&self, process: u32, first: u64, pages: u64) -> bool {
        let mut before = self.all.range((process, 0)..(process, first + pages));
        let last = before.next_back();
        last.is_some_and(|((_, start), known)| start + (1 << known.order) > first)
    }

    fn add(&mut self, process: u32, first: u64, order: u8, frame: u32) {
        self.unused += 1 << order;
        let reservation = FrameReservation {
            order,
            frame,
            handed_out: vec![false; 1 << order],
            unused: 1 << order,
            last: 0,
        };
        self.all.insert((process, first), reservation);
    }

    /// Hands out the frame reserved for a page; `None` if it was handed out before.
    fn hand_out_frame(&mut self, process: u32, first: u64, page: u64) -> Option<u32> {
        self.clock += 1;
        let reservation = self.all.get_mut(&(process, first))?;
        let place = (page - first) as usize;
        let handed_out = reservation.handed_out.get_mut(place)?;
        if std::mem::replace(handed_out, true) {
            return None;
        }
        reservation.last = self.clock;
        reservation.unused -= 1;
        self.unused -= 1;
        Some(reservation.frame + place as u32)
    }

    fn oldest_reservation_where(
        &self,
        fits: impl Fn(&FrameReservation) -> bool,
    ) -> Option<(u32, u64)> {
        let matching = self.all.iter().filter(|(_, known)| fits(known));
        let oldest = matching.min_by_key(|(_, known)| known.last);
        oldest.map(|(key, _)| *key)
    }

    /// All frames that are reserved and not handed out.
    pub(super) fn reserved_frames_left(&self) -> impl Iterator<Item = u32> {
        self.all.values().flat_map(FrameReservation::unused_reserved_frames)
    }
}

impl FrameReservation {
    fn unused_reserved_frames(&self) -> impl Iterator<Item = u32> {
        let frames = self.handed_out.iter().zip(self.frame..);
        frames.filter_map(|(handed_out, frame)| (!handed_out).then_some(frame))
    }

    /// Whether 2^order aligned frames of it were never handed out.
    fn has_unused_block(&self, order: u8) -> bool {
        let mut blocks = self.handed_out.chunks_exact(1 << order);
        blocks.any(|block| block.iter().all(|handed_out| !handed_out))
    }
}

impl ItaniumMachine {
    /// Takes a frame at a page's place in a reservation, and makes the reservation if there is
    /// none, with this order and first page or a smaller available order.
    pub(super) fn take_or_reserve_frame(
        &mut self,
        process: u32,
        page: u64,
        mut order: u8,
        preempt: bool,
    ) -> Option<u32> {
        if let Some(first) = self.reservations.first_page_of_reservation(process, page) {
            return self.reservations.hand_out_frame(process, first, page);
        }
        while order > 0 {
            let found = self.buddy.allocate_block(order);
            let found =
                found.or_else(|| preempt.then(|| self.preempt_and_allocate(order)).flatten());
            if let Some(frame) = found {
                let first = page & !((1 << order) - 1);
                self.reservations.add(process, first, order, frame);
                return self.reservations.hand_out_frame(process, first, page);
            }
            self.record_failed_request(order);
            order = self.allowed_orders().next_lower_order(order);
        }
        None
    }

    /// Gives up the oldest reservation that still has 2^order frames in one piece.
    fn preempt_and_allocate(&mut self, order: u8) -> Option<u32> {
        let fits = |known: &FrameReservation| known.order >= order && known.has_unused_block(order);
        let (process, first) = self.reservations.oldest_reservation_where(fits)?;
        self.release_reservation(process, first);
        self.buddy.allocate_block(order)
    }

    /// False if there is none.
    pub(super) fn release_oldest_reservation(&mut self) -> bool {
        let oldest = self.reservations.oldest_reservation_where(|known| known.unused > 0);
        oldest.is_some_and(|(process, first)| {
            self.release_reservation(process, first);
            true
        })
    }

    fn release_reservation(&mut self, process: u32, first: u64) {
        let Some(reservation) = self.reservations.all.remove(&(process, first)) else {
            return;
        };
        self.reservations.unused -= reservation.unused;
        self.statistics.given_up += u64::from(reservation.unused > 0);
        for frame in reservation.unused_reserved_frames() {
            self.buddy.free_range(frame, 1);
        }
    }

    pub(super) fn release_reservations_in_range(&mut self, process: u32, first: u64, pages: u64) {
        let last = first + (pages - 1);
        loop {
            let around = self.reservations.first_page_of_reservation(process, first);
            let all = &self.reservations.all;
            let mut within = all.range((process, first)..=(process, last));
            let Some(start) = around.or_else(|| Some(within.next()?.0.1)) else {
                return;
            };
            self.release_reservation(process, start);
        }
    }
}
