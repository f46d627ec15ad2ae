-- Copies the conversation :template with its messages :copies times, under new ids. `jsonb_populate_record` takes from
-- the template every column that the JSON does not set, so that new columns need no change here.
insert into ai_conversation
select copied.*
from ai_conversation as template
cross join generate_series(1, :copies) as n
cross join lateral jsonb_populate_record(
    template, jsonb_build_object('conversation_id', '00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))
) as copied
where template.conversation_id = :'template';

insert into ai_message
select copied.*
from ai_message as template
cross join generate_series(1, :copies) as n
cross join lateral jsonb_populate_record(
    template, jsonb_build_object('conversation_id', '00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))
) as copied
where template.conversation_id = :'template';
