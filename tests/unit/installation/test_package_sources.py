from __future__ import annotations

from installation.package_sources import install_options, read_pip_settings, uv_variables

CONFIG = """\
:env:.disable-pip-version-check='1'
global.cert='/etc/ssl/mirror.pem'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.find-links='/wheels'
global.index-url='https://old.example/simple'
install.index-url='https://user:it%27s@mirror.example/simple'
download.index-url='https://only-for-pip-download.example'
""".splitlines()


def test_a_later_section_of_pip_settings_wins() -> None:
    settings = read_pip_settings(CONFIG, {"PIP_FIND_LINKS": "/a /b", "PIP_DEFAULT_TIMEOUT": "60"})

    assert settings["index-url"] == "https://user:it%27s@mirror.example/simple"
    assert settings["find-links"] == "/a /b"
    assert settings["timeout"] == "60"


def test_uv_sees_the_sources_that_pip_sees() -> None:
    settings = read_pip_settings(
        CONFIG, {"PIP_FIND_LINKS": "/a /b", "PIP_TRUSTED_HOST": "one.example two.example:8080"}
    )

    assert uv_variables(settings, {}) == {
        "UV_DEFAULT_INDEX": "https://user:it%27s@mirror.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "one.example two.example:8080",
        "SSL_CERT_FILE": "/etc/ssl/mirror.pem",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_uv_is_told_by_its_own_variables_is_left() -> None:
    settings = read_pip_settings(CONFIG, {})
    own = {
        "UV_INDEX_URL": "https://own.example",
        "UV_FIND_LINKS": "/own",
        "SSL_CERT_FILE": "/own.pem",
    }

    assert uv_variables(settings, own) == {
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_without_an_index_there_is_none_for_uv_either() -> None:
    assert install_options(read_pip_settings([], {"PIP_NO_INDEX": "true"})) == ["--no-index"]
    assert install_options(read_pip_settings(["global.no-index='0'"], {})) == []
    assert install_options({}) == []
