-- Sets the original times ($4, in order) of the messages after $3. The append has set them to now.
-- The conditions on the range make every plan read only these messages.
update ai_message as m
set created_ts = 'epoch'::timestamptz + moved.created_us * interval '1 microsecond'
from unnest($4::bigint[]) with ordinality as moved (created_us, place)
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id > $3::bigint
  and m.message_id <= $3::bigint + cardinality($4::bigint[])
  and m.message_id = $3::bigint + moved.place
