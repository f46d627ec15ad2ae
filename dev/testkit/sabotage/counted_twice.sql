-- A naive implementation adds a message's tokens to the total again when its counting job is
-- repeated. Here every job adds the tokens of the newest counted message a second time.
create schema sabotage;

create function sabotage.count_again() returns trigger language plpgsql security definer as $$
begin
    select new.token_total + coalesce(token_count, token_estimate) into strict new.token_total from ai_message
    where conversation_id = new.conversation_id
      and message_id = new.counted_message_id;
    return new;
end
$$;

create trigger sabotage before update on ai_conversation
for each row when (new.counted_message_id > old.counted_message_id) execute function sabotage.count_again();
