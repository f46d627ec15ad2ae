-- Sets the original status and times of a moved conversation, and marks its title, if it has one,
-- as given. The statements that created it and appended to it have set the times to now.
update ai_conversation
set status = $3,
    title_given = title <> '',
    created_ts = 'epoch'::timestamptz + $4::bigint * interval '1 microsecond',
    last_activity_ts = 'epoch'::timestamptz + $5::bigint * interval '1 microsecond',
    listed_ts = 'epoch'::timestamptz + $5::bigint * interval '1 microsecond'
where tenant_id = $1
  and conversation_id = $2
