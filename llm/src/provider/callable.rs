//! Checks the configuration of providers and models, and builds the models that can be called.
//! Every error says what to do.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use anneal_core::{
    cache::CacheKind,
    media_access::{MediaAccess, is_host_entry},
    model::{ModelSettings, Models},
    tokens::Tokens,
};
use reqwest::{Client, Proxy, Url, redirect};

use super::{
    Api, MediaRule, MediaSettings, Model, OutputField, PromptCache, ProviderSettings, Providers,
    SettingsError, call_limits::Limits, http::Provider, key::Key,
};

/// A model's default output limit is this, or a quarter of its window if that is less.
const MAX_DEFAULT_OUTPUT: Tokens = Tokens::new(4_096);

/// The protocols' own base URLs.
const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com/v1";
const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The models that can be called, by name.
#[derive(Debug, Clone, Default)]
pub struct CallableModels(BTreeMap<String, Arc<Model>>);

impl CallableModels {
    /// Builds every model of the configuration that names its provider. Reads the providers' keys.
    /// An error says what to do.
    pub fn new(providers: &Providers, models: &Models) -> Result<Self, SettingsError> {
        let mut built_providers = BTreeMap::new();
        for (name, settings) in providers {
            let provider =
                provider(settings).map_err(|e| SettingsError(format!("providers.{name}: {e}")))?;
            built_providers.insert(name.as_str(), Arc::new(provider));
        }
        let mut callable = BTreeMap::new();
        for (name, settings) in models.configured() {
            let model = model(name, settings, models, &built_providers)
                .map_err(|e| SettingsError(format!("models.{name:?}: {e}")))?;
            callable.extend(model.map(|model| (name.to_owned(), Arc::new(model))));
        }
        Ok(Self(callable))
    }

    /// The names of all models.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The model of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Model>> {
        self.0.get(name)
    }
}

/// The names of the models whose requests do not ask for the cache of their provider. A model of
/// Anthropic behind another protocol is not among them: whether its host caches is not known.
pub fn models_without_cache(providers: &Providers, models: &Models) -> Vec<String> {
    let is_without = |name: &str, settings: &ModelSettings| {
        let provider = settings.provider.as_ref();
        provider
            .and_then(|provider| providers.get(provider))
            .is_some_and(|provider| {
                let is_foreign =
                    provider.api != Api::Anthropic && models.cache_kind(name) == CacheKind::Marked;
                !provider.asks_for_cache() && !is_foreign
            })
    };
    models
        .configured()
        .filter(|&(name, settings)| is_without(name, settings))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The callable model; None for settings without a provider. An error if the settings cannot work.
fn model(
    name: &str,
    settings: &ModelSettings,
    models: &Models,
    providers: &BTreeMap<&str, Arc<Provider>>,
) -> Result<Option<Model>, SettingsError> {
    let Some(provider) = &settings.provider else {
        let unused = [
            ("served_as", settings.served_as.is_some()),
            ("output_tokens", settings.output_tokens.is_some()),
            ("concurrent_calls", settings.concurrent_calls.is_some()),
        ];
        return match unused.iter().find(|(_, is_set)| *is_set) {
            Some((setting, _)) => refuse(format!(
                "{setting} is for models that are called: name its provider as well"
            )),
            None => Ok(None),
        };
    };
    let Some(provider) = providers.get(provider.as_str()) else {
        return refuse(format!(
            "there is no provider {provider:?}: add a section [providers.{provider}]"
        ));
    };
    let Some(window) = models.find(name).window else {
        return refuse(format!(
            "its context window is not known: set models.{name:?}.window_tokens"
        ));
    };
    let output = settings
        .output_tokens
        .unwrap_or_else(|| MAX_DEFAULT_OUTPUT.min(Tokens::new(window.get() / 4)));
    if output == Tokens::ZERO || output >= window {
        return refuse(format!(
            "output_tokens must be at least 1 and less than the window of {} tokens",
            window.get()
        ));
    }
    if settings.concurrent_calls == Some(0) {
        return refuse("concurrent_calls must be at least 1; leave it out for no limit".into());
    }
    let served_as = settings
        .served_as
        .clone()
        .unwrap_or_else(|| name.to_owned());
    if served_as.trim().is_empty() {
        return refuse("served_as is empty: say what the provider calls the model".into());
    }
    Ok(Some(Model {
        name: name.to_owned(),
        served_as,
        window,
        output,
        concurrent_calls: settings.concurrent_calls,
        provider: Arc::clone(provider),
    }))
}

/// Builds a provider from its settings. Reads its key.
pub(super) fn provider(settings: &ProviderSettings) -> Result<Provider, SettingsError> {
    let limits = limits(settings)?;
    let default_url =
        address("url", default_base_url(settings.api)).expect("the default base URLs are URLs");
    let base_url = settings
        .url
        .as_deref()
        .map_or_else(|| Ok(default_url.clone()), |url| address("url", url))?;
    if base_url.scheme() == "http" && !is_loopback(&base_url) && !settings.allow_http {
        let sentence = "url is plain HTTP to another host, which sends keys and conversations unencrypted: use https, \
                        or set allow_http = true on a private network";
        return refuse(sentence.into());
    }
    let key = Key::read(settings)?;
    let is_default_host = base_url.host_str() == default_url.host_str();
    if is_default_host && key.is_none() {
        return refuse(format!(
            "{} answers only with a key: set key_env or key_file",
            default_url.host_str().unwrap_or_default()
        ));
    }
    if settings.output_field.is_some() && settings.api != Api::OpenAi {
        return refuse(
            "output_field is for api = \"openai\": other protocols have one field for it".into(),
        );
    }
    let by_host = if is_default_host {
        OutputField::MaxCompletionTokens
    } else {
        OutputField::MaxTokens
    };
    let output_field = settings.output_field.unwrap_or(by_host);
    let media = media(settings.media.as_ref(), &base_url, is_default_host)?;
    let base_url = base_url.as_str().trim_end_matches('/').to_owned();
    Ok(Provider {
        api: settings.api,
        base_url,
        is_default_host,
        asks_for_cache: settings.asks_for_cache(),
        output_field,
        media,
        client: client(settings)?,
        key,
        limits,
    })
}

/// The media whose addresses a provider may receive. By default a host other than the protocol's
/// own gets none, because the operator may run it in a private network.
fn media(
    settings: Option<&MediaSettings>,
    base_url: &Url,
    is_default_host: bool,
) -> Result<MediaAccess, SettingsError> {
    let by_base_url = MediaSettings::Rule(if is_default_host {
        MediaRule::Https
    } else {
        MediaRule::Inline
    });
    match settings.unwrap_or(&by_base_url) {
        MediaSettings::Rule(MediaRule::Inline) => Ok(MediaAccess::Inline),
        MediaSettings::Rule(MediaRule::Https) => Ok(MediaAccess::PublicNames {
            provider_host: base_url.host_str().unwrap_or_default().into(),
        }),
        MediaSettings::Hosts(hosts) => match hosts.iter().find(|host| !is_host_entry(host)) {
            Some(host) => refuse(format!(
                "media holds {host:?}: list host names in lower case, such as \"example.com\" or \"*.example.com\""
            )),
            None if hosts.is_empty() => {
                refuse("media is an empty list: set \"inline\" for no host".into())
            }
            None => Ok(MediaAccess::Hosts(hosts.as_slice().into())),
        },
    }
}

impl ProviderSettings {
    /// Whether requests have the fields of the protocol's own prompt cache. Servers that implement
    /// OpenAI's or Gemini's protocol may refuse them, and have caches of other rules.
    fn asks_for_cache(&self) -> bool {
        match self.prompt_cache {
            PromptCache::Auto => self.api == Api::Anthropic || self.is_at_default_host(),
            PromptCache::On => true,
            PromptCache::None => false,
        }
    }

    /// Whether its address is at the protocol's own host.
    fn is_at_default_host(&self) -> bool {
        let default_url =
            address("url", default_base_url(self.api)).expect("the default base URLs are URLs");
        let base_url = address("url", self.url.as_deref().unwrap_or(default_url.as_str()));
        base_url.is_ok_and(|url| url.host_str() == default_url.host_str())
    }

    /// Whether the key is sent only to the protocol's own host or to this machine.
    pub fn is_trusted_endpoint(&self) -> bool {
        let default_url =
            address("url", default_base_url(self.api)).expect("the default base URLs are URLs");
        let Ok(base_url) = address("url", self.url.as_deref().unwrap_or(default_url.as_str()))
        else {
            return false;
        };
        let is_default_host =
            base_url.scheme() == "https" && base_url.host_str() == default_url.host_str();
        is_default_host || is_loopback(&base_url) && self.proxy.is_none()
    }
}

const fn default_base_url(api: Api) -> &'static str {
    match api {
        Api::OpenAi => OPENAI,
        Api::Anthropic => ANTHROPIC,
        Api::Gemini => GEMINI,
    }
}

fn limits(settings: &ProviderSettings) -> Result<Limits, SettingsError> {
    let all = [
        ("connect_timeout_ms", settings.connect_timeout_ms),
        ("first_byte_timeout_ms", settings.first_byte_timeout_ms),
        ("total_timeout_ms", settings.total_timeout_ms),
        ("response_bytes", settings.response_bytes),
    ];
    if let Some((setting, _)) = all.iter().find(|(_, limit)| *limit == 0) {
        return refuse(format!("{setting} must be at least 1"));
    }
    Ok(Limits {
        silence: Duration::from_millis(settings.first_byte_timeout_ms.into()),
        total: Duration::from_millis(settings.total_timeout_ms.into()),
        bytes: settings.response_bytes as usize,
    })
}

/// Parses a URL that has no user, password, query or fragment. Errors name the `setting`.
fn address(setting: &str, text: &str) -> Result<Url, SettingsError> {
    let wanted = || format!("{setting} must be an address such as https://host/v1");
    let url = Url::parse(text).map_err(|_| SettingsError(wanted()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return refuse(wanted());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse(format!(
            "{setting} must hold no user and no password: keys belong in key_env or key_file"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse(format!(
            "{setting} must end with its path: leave out what begins with ? or #"
        ));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

/// An HTTP client for this provider alone: no proxy from the environment, no redirects, no cookies,
/// no compression.
fn client(settings: &ProviderSettings) -> Result<Client, SettingsError> {
    let mut client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("anneal/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_millis(settings.connect_timeout_ms.into()));
    if let Some(proxy) = &settings.proxy {
        let address = address("proxy", proxy)?;
        let proxy = Proxy::all(address)
            .map_err(|_| SettingsError("proxy is not the address of a usable proxy".into()))?;
        client = client.proxy(proxy);
    }
    client.build().map_err(|_| {
        SettingsError(
            "TLS cannot be set up: install the system's certificates (package ca-certificates)"
                .into(),
        )
    })
}

fn refuse<T>(sentence: String) -> Result<T, SettingsError> {
    Err(SettingsError(sentence))
}
