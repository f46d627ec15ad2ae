-- An append of little content is stored with its token counts; a worker counts the others later. A
-- naive implementation counts each message of such an append with one token too many. All figures
-- agree with each other: the message's count and estimate, and the conversation's total. Messages
-- that workers count have the right counts.
create schema sabotage;

create function sabotage.add_token() returns trigger language plpgsql as $$
begin
    new.token_count := new.token_count + 1;
    new.token_estimate := new.token_estimate + 1;
    return new;
end
$$;

create function sabotage.add_to_total() returns trigger language plpgsql as $$
begin
    new.token_total := new.token_total + new.last_message_id - old.last_message_id;
    return new;
end
$$;

create trigger sabotage before insert on ai_message
for each row when (new.token_count is not null) execute function sabotage.add_token();
-- An append's messages are either all counted when they are stored, or none is. If they are,
-- counted_message_id moves with last_message_id.
create trigger sabotage before update on ai_conversation
for each row when (new.last_message_id > old.last_message_id and new.counted_message_id = new.last_message_id)
execute function sabotage.add_to_total();
