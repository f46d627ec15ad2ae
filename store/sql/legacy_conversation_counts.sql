-- Counts the conversations of the older tables, and irregular rows. For some irregularities a
-- "first_" column has the lowest id of such a row. "timeless" ones have no time that can be read,
-- "repeated" ones have the id of another row. "fate" is what the move does with a message row
-- (see legacy_views.sql). "ids" are the labels that keep a row's old ids, and also a conversation's
-- old update time, unknown status and too long title. "separators_joined" counts the separators
-- that follow another one without a message between. $1: most bytes of a title, $2: of a user's id,
-- $3: of labels.
select conversations, archived, unknown_status, timeless, first_timeless, repeated, titles_shortened, long_creators,
    first_long_creator, long_ids, first_long_ids, labels_left_out, long_message_ids, first_long_message_ids,
    message_labels_left_out, separators_joined,
    (select count(*) - count(distinct id) from legacy_content) as repeated_messages
from (
    select count(*) as conversations,
        count(*) filter (where status = 'archived') as archived,
        count(*) filter (where status = 'other') as unknown_status,
        count(*) filter (where created_us is null) as timeless,
        min(id) filter (where created_us is null) as first_timeless,
        count(*) - count(distinct id) as repeated,
        count(*) filter (where octet_length(title) > $1::bigint) as titles_shortened,
        count(*) filter (where octet_length(creator) > $2::bigint) as long_creators,
        min(id) filter (where octet_length(creator) > $2::bigint) as first_long_creator,
        count(*) filter (where octet_length(ids::text) > $3::bigint) as long_ids,
        min(id) filter (where octet_length(ids::text) > $3::bigint) as first_long_ids,
        count(*) filter (where labels is null) as labels_left_out
    from legacy_conversation
) as conversation_counts
cross join (
    select count(*) filter (where octet_length(t.ids::text) > $3::bigint) as long_message_ids,
        min(t.id) filter (where octet_length(t.ids::text) > $3::bigint) as first_long_message_ids,
        count(*) filter (where t.labels is null and m.fate = 'message') as message_labels_left_out
    from legacy_content as t
    join legacy_message as m on m.id = t.id
) as message_counts
cross join (
    select count(*) - count(distinct (conversation_id, place)) as separators_joined
    from (
        select conversation_id, fate,
            count(*) filter (where fate = 'message') over (
                partition by conversation_id order by created_us, id
            ) as place
        from legacy_message
    ) as placed
    where fate = 'separator'
) as separator_counts
