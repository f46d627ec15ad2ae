-- Since when a breaker is open: the process that opens or closes it logs this, and calls that it refuses are told.
-- Older binaries work beside it. They neither set nor clear these times, so a time counts only while the breaker has not closed
-- (open_until_ts is not null).

alter table ai_model_breaker
    add column opened_ts timestamptz;                           -- when the breaker opened; null: it is closed

alter table ai_tenant_breaker
    add column opened_ts timestamptz;                           -- when the tenant's failures opened it while the model's was closed; null: they did not
