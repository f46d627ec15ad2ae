-- A naive implementation stores the input of tool calls as JSON, not as text: it comes back with
-- other spaces, another order of keys, and numbers in another notation.
create schema sabotage;

create function sabotage.rewrite_inputs() returns trigger language plpgsql as $$
begin
    select json_agg(
        case when part ? 'input'
            then jsonb_set(part, '{input}', to_jsonb((part ->> 'input')::jsonb::text))
            else part
        end
        order by place
    )
    into strict new.content
    from jsonb_array_elements(new.content::jsonb) with ordinality as parts (part, place);
    new.content_digest := sha256(convert_to(new.content::text, 'UTF8'));
    new.content_bytes := octet_length(new.content::text);
    return new;
end
$$;

create trigger sabotage before insert on ai_message
for each row when (new.tool_outline is not null) execute function sabotage.rewrite_inputs();
