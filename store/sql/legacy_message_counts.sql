-- Counts the message rows of the older tables by their fate (see legacy_views.sql), messages also
-- by role, and the irregular rows among them: "empty" ones without content, those that are too long
-- ($1: most bytes of a message), and "timeless" ones without a time that can be read. A "first_"
-- column has the lowest id of the rows that the column before it counts, "first" that of all rows.
select fate, case when fate = 'message' then role else '' end as role, count(*) as rows,
    count(*) filter (where bytes = 0) as empty,
    count(*) filter (where bytes > $1) as too_long,
    min(id) filter (where bytes > $1) as first_too_long,
    count(*) filter (where created_us is null) as timeless,
    min(id) filter (where created_us is null) as first_timeless,
    min(id) as first
from legacy_message
group by 1, 2
order by 1, 2
limit 100
