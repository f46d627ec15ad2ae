//! Which connections there are, by owner, how many places they take, and which of them are closed where those are too many.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
};

use anneal_core::caller::TenantId;

/// Of so many places one is kept for connections whose first request is still to be read: probes and whoever is new.
const RESERVE: usize = 16;
/// Connections of one owner that are looked at, the oldest first, for one on which no call is under way.
const LOOKED_AT: usize = 64;

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// No call with a credential has come on it.
    Unknown,
    /// Every call with a credential on it was this tenant's.
    Tenant(TenantId),
    /// Several tenants have called on it: it is a proxy's.
    Several,
}

/// How many places connections may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Of all owners together.
    all: usize,
    /// Of all owners but [`Owner::Unknown`] together.
    known: usize,
    /// Of one owner other than [`Owner::Unknown`].
    share: usize,
}

impl Bounds {
    /// So many in all, and so many percent of them of one tenant.
    pub(super) fn new(places: NonZeroU32, share_percent: u32) -> Self {
        let all = places.get() as usize;
        let known = (all - all.div_ceil(RESERVE)).max(1);
        let share = (all.saturating_mul(share_percent as usize) / 100).clamp(1, known);
        Self { all, known, share }
    }
}

/// A connection in the table.
pub(super) trait Entry {
    /// Whether a call is under way on it.
    fn is_busy(&self) -> bool;
    /// Whether a call is under way on it that needs no credential.
    fn has_open_call(&self) -> bool;
    /// When something last came or went on it; smaller is longer ago.
    fn last_active(&self) -> u64;
}

/// The open connections. Ids are given in the order in which connections came.
pub(super) struct Table<E> {
    bounds: Bounds,
    next_id: u64,
    /// Connections, and the places that they take.
    count: usize,
    places: usize,
    by_owner: HashMap<Owner, OfOwner<E>>,
}

/// The connections of one owner.
struct OfOwner<E> {
    places: usize,
    connections: BTreeMap<u64, Seated<E>>,
}

struct Seated<E> {
    entry: E,
    places: usize,
}

impl<E: Entry> Table<E> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, next_id: 0, count: 0, places: 0, by_owner: HashMap::new() }
    }

    /// Open connections.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Whether half of all places are taken.
    pub(super) const fn is_half_taken(&self) -> bool {
        self.places * 2 >= self.bounds.all
    }

    /// Every open connection, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.by_owner.values().flat_map(|of_owner| of_owner.connections.values().map(|seated| &seated.entry))
    }

    /// Takes in a new connection of nobody known, at one place. Returns its id, and those that are to be closed for it.
    pub(super) fn insert(&mut self, entry: E) -> (u64, Vec<E>) {
        let id = self.next_id;
        self.next_id += 1;
        self.seat(Owner::Unknown, id, Seated { entry, places: 1 });
        (id, self.make_room(Owner::Unknown, id))
    }

    /// Removes a connection; None: it is not there any more.
    pub(super) fn remove(&mut self, owner: Owner, id: u64) -> Option<E> {
        self.unseat(owner, id).map(|seated| seated.entry)
    }

    /// Gives a connection to another owner. Returns those that are to be closed for it.
    pub(super) fn give(&mut self, id: u64, from: Owner, to: Owner) -> Vec<E> {
        let Some(seated) = self.unseat(from, id) else { return Vec::new() };
        self.seat(to, id, seated);
        self.make_room(to, id)
    }

    /// Has a connection take so many places, or a whole share. Returns those that are to be closed for it.
    pub(super) fn resize(&mut self, id: u64, owner: Owner, places: usize) -> Vec<E> {
        let places = places.min(self.bounds.share);
        let Some(seated) = self.unseat(owner, id) else { return Vec::new() };
        self.seat(owner, id, Seated { places, ..seated });
        self.make_room(owner, id)
    }

    /// Removes the oldest connection of nobody known on which there is an open call, another one than this; None: there is none.
    pub(super) fn take_open_caller(&mut self, but: u64) -> Option<E> {
        let connections = &self.by_owner.get(&Owner::Unknown)?.connections;
        let oldest = connections.iter().find(|(id, seated)| **id != but && seated.entry.has_open_call());
        let id = *oldest?.0;
        self.remove(Owner::Unknown, id)
    }

    fn seat(&mut self, owner: Owner, id: u64, seated: Seated<E>) {
        let of_owner =
            self.by_owner.entry(owner).or_insert_with(|| OfOwner { places: 0, connections: BTreeMap::new() });
        of_owner.places += seated.places;
        self.places += seated.places;
        self.count += 1;
        of_owner.connections.insert(id, seated);
    }

    fn unseat(&mut self, owner: Owner, id: u64) -> Option<Seated<E>> {
        let of_owner = self.by_owner.get_mut(&owner)?;
        let seated = of_owner.connections.remove(&id)?;
        of_owner.places -= seated.places;
        self.places -= seated.places;
        self.count -= 1;
        if of_owner.connections.is_empty() {
            self.by_owner.remove(&owner);
        }
        Some(seated)
    }

    /// Removes connections until the bounds hold after a change of this one: of its owner where that has more than its share, of
    /// whoever has most where known owners take too many places, and else the oldest of nobody known. There is one then, because
    /// known owners may not take all places.
    fn make_room(&mut self, owner: Owner, id: u64) -> Vec<E> {
        let mut closed = Vec::new();
        while owner != Owner::Unknown && self.places_of(owner) > self.bounds.share {
            closed.extend(self.take_of(owner, id));
        }
        while self.places - self.places_of(Owner::Unknown) > self.bounds.known {
            let Some(largest) = self.largest() else { break };
            closed.extend(self.take_of(largest, id));
        }
        while self.places > self.bounds.all {
            let oldest =
                self.by_owner.get(&Owner::Unknown).and_then(|unknown| unknown.connections.keys().next().copied());
            match oldest {
                // The only place is for whoever came last.
                Some(oldest) if oldest != id || self.bounds.all > 1 => {
                    closed.extend(self.remove(Owner::Unknown, oldest));
                }
                _ => {
                    let Some(largest) = self.largest() else { break };
                    closed.extend(self.take_of(largest, id));
                }
            }
        }
        closed
    }

    fn places_of(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).map_or(0, |of_owner| of_owner.places)
    }

    /// The known owner with the most places.
    fn largest(&self) -> Option<Owner> {
        let known = self.by_owner.iter().filter(|(owner, _)| **owner != Owner::Unknown);
        known.max_by_key(|(_, of_owner)| of_owner.places).map(|(owner, _)| *owner)
    }

    /// Removes the connection of an owner that has to go: of its oldest ones without a call the one that was idle longest, else
    /// the oldest. Another one than `but`, if there is another one.
    fn take_of(&mut self, owner: Owner, but: u64) -> Option<E> {
        let connections = &self.by_owner.get(&owner)?.connections;
        let others = || connections.iter().filter(|(id, _)| **id != but);
        let idle = others().take(LOOKED_AT).filter(|(_, seated)| !seated.entry.is_busy());
        let idle = idle.min_by_key(|(_, seated)| seated.entry.last_active());
        let id = idle.or_else(|| others().next()).map_or(but, |(id, _)| *id);
        self.remove(owner, id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ANNA: Owner = Owner::Tenant(TenantId(Uuid::from_u128(1)));
    const EVE: Owner = Owner::Tenant(TenantId(Uuid::from_u128(2)));

    /// A connection of this name: whether a call is under way on it, and when it was last active.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Connection(u64, bool, u64);

    impl Entry for Connection {
        fn is_busy(&self) -> bool {
            self.1
        }

        fn has_open_call(&self) -> bool {
            self.1
        }

        fn last_active(&self) -> u64 {
            self.2
        }
    }

    fn table(connections: u32, share_percent: u32) -> Table<Connection> {
        Table::new(Bounds::new(NonZeroU32::new(connections).expect("not 0"), share_percent))
    }

    /// A new connection that becomes this owner's; the name of the one that is closed for it.
    fn known(table: &mut Table<Connection>, connection: Connection, owner: Owner) -> Option<u64> {
        let (id, mut closed) = table.insert(connection);
        closed.extend(table.give(id, Owner::Unknown, owner));
        assert!(closed.len() <= 1, "one place is one place: {closed:?}");
        closed.first().map(|closed| closed.0)
    }

    #[test]
    fn a_tenant_above_its_share_gives_up_its_own_idle_and_oldest_connections() {
        let mut table = table(8, 50);
        for name in 0..4 {
            assert_eq!(known(&mut table, Connection(name, name != 2, 0), EVE), None);
        }
        assert_eq!(known(&mut table, Connection(10, false, 0), ANNA), None);
        assert_eq!(known(&mut table, Connection(4, true, 0), EVE), Some(2), "no call is under way on it");
        assert_eq!(known(&mut table, Connection(5, true, 0), EVE), Some(0), "the oldest");
        assert_eq!(known(&mut table, Connection(6, false, 0), EVE), Some(1), "not the one that has just come");
        assert_eq!(table.len(), 5);
    }

    #[test]
    fn of_idle_connections_the_one_that_was_idle_longest_goes() {
        let mut table = table(8, 50);
        for (name, active) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
            known(&mut table, Connection(name, false, active), EVE);
        }
        assert_eq!(known(&mut table, Connection(4, false, 50), EVE), Some(1));
    }

    #[test]
    fn a_new_connection_finds_a_place_whatever_others_hold() {
        let mut table = table(32, 100);
        for name in 0..100 {
            known(&mut table, Connection(name, true, 0), EVE);
        }
        assert_eq!(table.len(), 30, "two places are kept");
        assert_eq!(table.insert(Connection(200, true, 0)).1, []);
        assert_eq!(table.insert(Connection(201, false, 0)).1, []);
        for name in 202..300 {
            let closed = table.insert(Connection(name, false, 0)).1;
            assert_eq!(closed.first().map(|closed| closed.0), Some(name - 2), "the oldest stranger, busy or not");
        }
        assert_eq!(table.len(), 32);
        let (_, closed) = table.insert(Connection(300, true, 0));
        assert_eq!(closed.len(), 1);
        assert_eq!(table.take_open_caller(1_000).map(|closed| closed.0), Some(300), "an open call is under way on it");
        assert_eq!(table.take_open_caller(1_000), None, "others stay");
    }

    #[test]
    fn tenants_who_have_taken_everything_make_room_for_one_who_has_nothing() {
        let mut table = table(32, 50);
        for name in 0..16 {
            known(&mut table, Connection(name, true, 0), EVE);
            known(&mut table, Connection(100 + name, true, 0), Owner::Several);
        }
        assert_eq!(table.len(), 30, "known ones do not take the places that are kept");
        for name in 0..10 {
            let closed = known(&mut table, Connection(200 + name, true, 0), ANNA);
            assert!(closed.is_some_and(|closed| closed < 200), "never her own, but {closed:?}");
        }
    }

    #[test]
    fn a_connection_that_takes_more_places_leaves_fewer_to_others() {
        let mut table = table(32, 50);
        for name in 0..10 {
            known(&mut table, Connection(name, true, 0), EVE);
        }
        let closed = table.resize(9, EVE, 10);
        assert_eq!(closed.iter().map(|closed| closed.0).collect::<Vec<_>>(), [0, 1, 2], "sixteen places are eve's");
        assert_eq!((table.len(), table.places), (7, 16));
        let strangers: Vec<u64> = (0..8).map(|name| table.insert(Connection(100 + name, true, 0)).0).collect();
        let closed = table.resize(strangers[7], Owner::Unknown, 13);
        assert_eq!(
            closed.iter().map(|closed| closed.0).collect::<Vec<_>>(),
            [100, 101, 102, 103],
            "the oldest strangers"
        );
        assert_eq!(table.places, 32);
        assert_eq!(table.resize(strangers[0], Owner::Unknown, 5), [], "it is not there any more");
        assert_eq!(table.resize(9, EVE, 40).len(), 6, "it takes her whole share");
        assert_eq!(table.resize(9, EVE, 80), [], "and stays");
    }

    #[test]
    fn a_server_with_one_place_serves_whoever_came_last() {
        let mut table = table(1, 50);
        assert_eq!(known(&mut table, Connection(0, true, 0), ANNA), None);
        assert_eq!(known(&mut table, Connection(1, true, 0), EVE), Some(0));
        assert_eq!(table.remove(EVE, 1).map(|removed| removed.0), Some(1));
        assert_eq!((table.len(), table.remove(EVE, 1)), (0, None));
    }
}
